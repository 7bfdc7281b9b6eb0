package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// knowMachines lists the packages that may name a machine; all others use package arch. In sframe, machines are part of
// the format. verify does not use arch.
var knowMachines = []string{"internal/arch", "sframe", "verify"}

// TestMachines checks that only the packages in knowMachines name machines, ABIs or relocation types.
func TestMachines(t *testing.T) {
	found := 0
	sources(t, func(dir, file string) {
		tree := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && isMachine(x.Name, sel.Sel.Name) {
				found++
				if !slices.Contains(knowMachines, dir) {
					t.Errorf("%s uses %s.%s; only %q know machines, others use arch.PerMachine", file, x.Name,
						sel.Sel.Name, knowMachines)
				}
			}
			return true
		})
	})
	if found == 0 {
		t.Error("no package names a machine")
	}
}

// isMachine reports whether a package's name is that of a machine, an ABI, or a relocation type.
func isMachine(pkg, name string) bool {
	switch pkg {
	case "elf":
		return strings.HasPrefix(name, "EM_") || strings.HasPrefix(name, "R_")
	case "sframe": // AMD64Little, S390XBig
		return strings.HasSuffix(name, "Little") || strings.HasSuffix(name, "Big")
	}
	return false
}

// sources calls fn with the directory and the path of each Go file, except tests and files below internal/testkit and
// lab.
func sources(t *testing.T, fn func(dir, file string)) {
	t.Helper()
	must.Do(t, filepath.WalkDir("..", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git" || file == "../lab"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel("..", filepath.Dir(file))
		if err == nil && !strings.HasPrefix(dir, "internal/testkit/") {
			fn(dir, file)
		}
		return err
	}))
}

// TestImports compares the imports of each package with the tables in docs/architecture.md, which name packages by the
// last element of their paths.
func TestImports(t *testing.T) {
	documented := make(map[string][]string)
	name := regexp.MustCompile("`([^`]+)`")
	table := false
	for line := range strings.Lines(string(must.Get(os.ReadFile("../docs/architecture.md"))(t))) {
		cells := strings.Split(line, "|")
		if table = strings.HasPrefix(line, "| package | imports |") || table && len(cells) > 3; !table {
			continue
		}
		if pkg := name.FindStringSubmatch(cells[1]); pkg != nil {
			imports := []string{}
			for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
				imports = append(imports, m[1])
			}
			documented[path.Base(pkg[1])] = imports
		}
	}
	used := make(map[string][]string)
	sources(t, func(dir, file string) {
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly))(t)
		imports := used[path.Base(dir)]
		for _, spec := range f.Imports {
			if own, ok := strings.CutPrefix(must.Get(strconv.Unquote(spec.Path.Value))(t), "cfi2sframe/"); ok {
				imports = append(imports, path.Base(own))
			}
		}
		used[path.Base(dir)] = imports
	})
	delete(used, ".") // doc.go
	for _, imports := range []map[string][]string{documented, used} {
		for pkg, list := range imports {
			slices.Sort(list)
			imports[pkg] = slices.Compact(list)
		}
	}
	for pkg := range used {
		if want, ok := documented[pkg]; !ok || !slices.Equal(used[pkg], want) {
			t.Errorf("%s imports %v; docs/architecture.md lists %v", pkg, used[pkg], want)
		}
		delete(documented, pkg)
	}
	if len(documented) > 0 {
		t.Errorf("docs/architecture.md lists packages that do not exist: %v", documented)
	}
}

// notBelow matches packages that the library must not import: those for reports, child processes, networking, package
// archives and terminals.
var notBelow = regexp.MustCompile(`^(html|text)/template$|^os/exec$|^archive/|^net(/|$)|/xz\b|/term$|^cfi2sframe/cmd/`)

// TestLibrary checks that convert depends on none of the packages that only the command needs.
func TestLibrary(t *testing.T) {
	out := must.Get(exec.Command("go", "list", "-deps", "cfi2sframe/convert").Output())(t)
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "cfi2sframe/translate") {
		t.Fatalf("packages %v", deps)
	}
	for _, path := range deps {
		if notBelow.MatchString(path) {
			t.Errorf("convert depends on %s", path)
		}
	}
}
