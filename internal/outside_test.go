package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	"cfi2sframe/internal/testkit/testfile"
)

// public lists the packages for other programs, in the order of the steps of a conversion.
var public = []string{"elffile", "cfi", "translate", "emit", "elfwrite", "verify", "convert", "sframe"}

// TestOutside builds the programs in testdata/outside, and one from the examples in the comments of packages, in a
// separate module that imports this one, and runs them.
func TestOutside(t *testing.T) {
	root := must.Get(filepath.Abs(".."))(t)
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS("testdata/outside")))
	must.Do(t, os.Mkdir(filepath.Join(dir, "comments"), 0o777))
	testfile.Write(t, filepath.Join(dir, "comments/main.go"), commentsProgram(t))
	for _, name := range []string{"go.mod", "go.sum"} {
		testfile.Write(t, filepath.Join(dir, name), testfile.Read(t, filepath.Join("..", name)))
	}
	prologue := testfile.Read(t, "../testdata/bin/amd64/prologue")
	testfile.Write(t, filepath.Join(dir, "program"), prologue)
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		return string(must.Run(t, cmd))
	}
	// The requirements are those of this module, so nothing is downloaded.
	run("go", "mod", "edit", "-module", "outside", "-require", "cfi2sframe@v0.0.0", "-replace", "cfi2sframe="+root)
	must.Do(t, os.Mkdir(filepath.Join(dir, "bin"), 0o777))
	run("go", "build", "-o", "bin/", "./...")
	size := regexp.MustCompile(`\d+ FDEs, \d+ bytes\n`) // no peer has the same
	// Rows are those that readelf --debug-dump=frames-interp prints.
	for _, tt := range []struct{ args, want string }{
		{"function program full", "0x440 CFA rsp+8, RA c-8, FP none, SP none\n" +
			"0x445 CFA rsp+16, RA c-8, FP c-16, SP none\n0x448 CFA rbp+16, RA c-8, FP c-16, SP none\n" +
			"0x46c CFA rsp+8, RA c-8, FP c-16, SP none\n"},
		{"convert program", "107 107\n" +
			"amd64, SFRAME_VERSION_2, 2 FDEs: 107 of 107 bytes of code agree, mismatches: 0\n"},
		{"comments", "0x440\n0x440: CFA rsp+8, RA c-8, FP none, SP none\n" +
			"0x445: CFA rsp+16, RA c-8, FP c-16, SP none\n0x448: CFA rbp+16, RA c-8, FP c-16, SP none\n" +
			"0x46c: CFA rsp+8, RA c-8, FP c-16, SP none\n107 of 107 bytes of code have rows; gaps: 0\n" +
			"107 bytes of code agree\n107 of 107 bytes of code have rows\n" +
			"CFA rbp+16, RA *(c-8), FP *(c-16)\n"},
		{"row program 0x445", "CFA rsp+16, RA *(c-8), FP *(c-16)\n"}, // comments has converted it
	} {
		args := strings.Fields(tt.args)
		got := run(filepath.Join(dir, "bin", args[0]), args[1:]...)
		if size.ReplaceAllString(got, "") != tt.want {
			t.Errorf("%s: got\n%swant\n%s", tt.args, got, tt.want)
		}
	}
}

// commentsProgram returns a program that consists of the examples after the first sentences of package comments. The
// examples of elffile to verify are the steps of a conversion. The program runs them, converts the file, and finds a
// row.
func commentsProgram(t *testing.T) string {
	example := make(map[string]string)
	var imports strings.Builder
	for _, pkg := range public {
		imports.WriteString("\"cfi2sframe/" + pkg + "\"\n")
		for _, path := range must.Get(filepath.Glob("../" + pkg + "/*.go"))(t) {
			mode := parser.PackageClauseOnly | parser.ParseComments
			f := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, mode))(t)
			if f.Doc == nil {
				continue
			}
			_, code, _ := strings.Cut(f.Doc.Text(), "\n\n")
			for line := range strings.Lines(code) {
				if !strings.HasPrefix(line, "\t") && line != "\n" {
					break
				}
				example[pkg] += line
			}
			example[pkg] = strings.ReplaceAll(example[pkg], `"main"`, `"full"`)
		}
		if n := strings.Count(example[pkg], "\n"); n < 5 {
			t.Errorf("the comment of package %s starts with %d lines of example", pkg, n)
		}
	}
	function := func(name string, bodies ...string) string {
		return "func " + name + " error {\n" + strings.Join(bodies, "") + "return nil\n}\n\n"
	}
	return "package main\n\nimport (\n\"bytes\"\n\"context\"\n\"debug/elf\"\n\"fmt\"\n\"os\"\n\n" + imports.String() +
		")\n\n" + function("steps(ctx context.Context)", example["elffile"], example["cfi"], example["translate"],
		example["emit"], "out, err := os.Create(\"new\")\nif err != nil {\nreturn err\n}\n", example["elfwrite"],
		"return check()\n}\n\nfunc check() error {\n"+
			"f, err := elffile.Open(\"new\")\nif err != nil {\nreturn err\n}\n"+
			"section, err := sframe.Load(f)\nif err != nil {\nreturn err\n}\n"+
			"table, err := cfi.Load(f, cfi.Auto, nil)\nif err != nil {\nreturn err\n}\n", example["verify"]) +
		function("add(ctx context.Context, program []byte)", example["convert"],
			"if err := os.WriteFile(\"program\", out.Bytes(), 0o666); err != nil {\nreturn err\n}\n") +
		function("find()", example["sframe"]) + `func main() {
	ctx := context.Background()
	program, err := os.ReadFile("program")
	for _, run := range []func() error{
		func() error { return err },
		func() error { return steps(ctx) },
		func() error { return add(ctx, program) },
		find,
	} {
		if err := run(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
`
}

// TestOutsideTypes expects that other programs can name all types of the public packages: exported declarations use
// types of internal packages only in aliases.
func TestOutsideTypes(t *testing.T) {
	found := 0
	sources(t, func(dir, file string) {
		if !slices.Contains(public, dir) {
			return
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
		internal := make(map[string]bool)
		for _, spec := range f.Imports {
			if p := must.Get(strconv.Unquote(spec.Path.Value))(t); strings.HasPrefix(p, "cfi2sframe/internal/") {
				internal[path.Base(p)] = true
			}
		}
		ast.FileExports(f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				found++
				return !n.Assign.IsValid()
			case *ast.ValueSpec: // a value may have any type
				return n.Type != nil
			case *ast.BlockStmt:
				return false
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && internal[x.Name] {
					t.Errorf("%s: an exported declaration uses %s.%s", file, x.Name, n.Sel.Name)
				}
			}
			return true
		})
	})
	if found < 50 {
		t.Errorf("%d types", found)
	}
}
