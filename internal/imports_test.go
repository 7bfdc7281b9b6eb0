package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// layers lists the packages of this module that each package may import. Data flows one way, and verify shares nothing
// with translate. Packages below internal/testkit may import whatever they test, and only tests import them.
var layers = map[string][]string{
	".":             {},
	"internal/arch": {"sframe"},
	"cfi":           {"internal/arch", "elffile", "internal/gopclntab"},
	"cmd/cfi2sframe": {"cfi", "convert", "elffile", "elfwrite", "internal/debugfile",
		"internal/files", "internal/heap", "internal/inode", "cmd/cfi2sframe/internal/linker",
		"cmd/cfi2sframe/internal/lookup", "internal/outfile", "cmd/cfi2sframe/internal/sframediff",
		"cmd/cfi2sframe/internal/survey", "cmd/cfi2sframe/internal/report", "sframe"},
	"convert": {"internal/arch", "cfi", "elffile", "elfwrite", "emit", "internal/archive", "internal/code",
		"internal/filecopy", "internal/outfile", "internal/padding", "internal/plt", "sframe", "translate", "verify"},
	"elffile":            {"internal/arch"},
	"elfwrite":           {"internal/arch", "elffile", "internal/filecopy", "sframe"},
	"emit":               {"sframe"},
	"internal/code":      {"cfi", "elffile", "internal/insn"},
	"internal/gopclntab": {"elffile", "internal/insn"},
	"internal/insn":      {},
	"internal/archive":   {"internal/filecopy"},
	"internal/debugfile": {"convert", "elffile", "internal/outfile"},
	"internal/filecopy":  {},
	"internal/files": {"cfi", "convert", "elffile", "elfwrite", "internal/archive", "internal/debugfile",
		"internal/filecopy", "internal/inode", "internal/outfile", "sframe"},
	"internal/heap":                  {},
	"internal/inode":                 {},
	"cmd/cfi2sframe/internal/linker": {"internal/inode"},
	"cmd/cfi2sframe/internal/lookup": {"internal/arch", "cfi", "convert", "elffile", "internal/files",
		"cmd/cfi2sframe/internal/report", "sframe", "translate"},
	"internal/outfile":             {"internal/inode"},
	"cmd/cfi2sframe/internal/page": {},
	"cmd/cfi2sframe/internal/sframediff": {"internal/arch", "cfi", "convert", "elffile", "elfwrite", "internal/files",
		"internal/padding", "internal/plt", "cmd/cfi2sframe/internal/report", "sframe", "translate"},
	"cmd/cfi2sframe/internal/survey": {"internal/arch", "cfi", "convert", "elffile", "internal/archive",
		"internal/filecopy", "internal/inode", "internal/outfile", "cmd/cfi2sframe/internal/page", "internal/plt",
		"cmd/cfi2sframe/internal/report", "sframe", "translate"},
	"internal/padding": {"cfi", "elffile", "internal/plt"},
	"internal/plt":     {"internal/arch", "cfi", "elffile"},
	"cmd/cfi2sframe/internal/report": {"internal/arch", "cfi", "convert", "elffile", "cmd/cfi2sframe/internal/page",
		"internal/padding", "internal/plt", "sframe", "translate"},
	"sframe":    {},
	"translate": {"internal/arch", "cfi", "elffile", "internal/plt", "sframe"},
	"verify":    {"cfi", "elffile", "sframe"},
}

// knowMachines lists the packages that may name a machine; all others use package arch. In sframe, machines are part of
// the format.
var knowMachines = []string{"internal/arch", "internal/code", "internal/gopclntab", "internal/insn", "internal/padding",
	"internal/plt", "sframe", "verify"}

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
					t.Errorf("%s uses %s.%s", file, x.Name, sel.Sel.Name)
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

func TestImports(t *testing.T) {
	seen := make(map[string]bool)
	sources(t, func(dir, file string) {
		allowed, ok := layers[dir]
		if !ok {
			t.Errorf("%s is in no layer", dir)
		}
		seen[dir] = true
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly))(t)
		for _, spec := range f.Imports {
			path := must.Get(strconv.Unquote(spec.Path.Value))(t)
			if own, ok := strings.CutPrefix(path, "cfi2sframe/"); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s", file, path)
			}
		}
	})
	for dir := range layers {
		if !seen[dir] {
			t.Errorf("%s: no Go files", dir)
		}
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
