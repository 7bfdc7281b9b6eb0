package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers lists for each package those of this module that it may import. Data goes
// one way, and verify shares nothing with translate. What is below internal/lab may import
// whatever it measures, and nobody imports that but tests.
var layers = map[string][]string{
	"arch":               {"sframe"},
	"cfi":                {"arch", "elffile"},
	"cmd/cfi2sframe":     {"cfi", "convert", "elfwrite", "internal/debugfile", "internal/heap", "internal/outfile", "internal/survey", "report", "sframe"},
	"convert":            {"arch", "cfi", "elffile", "elfwrite", "emit", "internal/archive", "internal/debugfile", "internal/filecopy", "internal/inode", "internal/outfile", "plt", "report", "sframe", "translate", "verify"},
	"elffile":            {"arch", "sframe"},
	"elfwrite":           {"arch", "elffile", "internal/filecopy", "sframe"},
	"emit":               {"sframe"},
	"internal/archive":   {"internal/filecopy"},
	"internal/debugfile": {"elffile"},
	"internal/dwline":    {"elffile"},
	"internal/filecopy":  {},
	"internal/heap":      {},
	"internal/inode":     {},
	"internal/outfile":   {"internal/inode"},
	"internal/survey":    {"arch", "cfi", "elffile", "elfwrite", "internal/archive", "internal/inode", "internal/outfile", "plt", "report", "sframe", "translate"},
	"plt":                {"arch", "cfi", "elffile"},
	"report":             {"arch", "cfi", "elffile", "internal/dwline", "plt", "sframe", "translate"},
	"sframe":             {},
	"translate":          {"arch", "cfi", "plt", "sframe"},
	"verify":             {"cfi", "elffile", "sframe"},
}

func TestImports(t *testing.T) {
	seen := make(map[string]bool)
	err := filepath.WalkDir("..", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel("..", filepath.Dir(file))
		if err != nil {
			return err
		}
		allowed, ok := layers[dir]
		if lab := strings.HasPrefix(dir, "internal/lab/"); !ok && !lab {
			t.Errorf("%s is in no layer", dir)
		} else if lab {
			return nil
		}
		seen[dir] = true
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if own, ok := strings.CutPrefix(path, "cfi2sframe/"); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s", file, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range layers {
		if !seen[dir] {
			t.Errorf("%s: no Go files", dir)
		}
	}
}
