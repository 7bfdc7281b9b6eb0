package internal_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers lists for each package those of this module that it may import. Data goes
// one way, and verify shares nothing with translate.
var layers = map[string][]string{
	"internal/elffile":   {},
	"sframe":             {},
	"cfi":                {"internal/elffile"},
	"plt":                {"cfi", "internal/elffile"},
	"translate":          {"cfi", "plt", "sframe"},
	"emit":               {"sframe"},
	"elfwrite":           {"internal/elffile", "internal/filecopy", "sframe"},
	"internal/archive":   {"internal/filecopy"},
	"internal/filecopy":  {},
	"internal/heap":      {},
	"internal/inode":     {},
	"internal/outfile":   {"internal/inode"},
	"internal/debugfile": {"internal/elffile"},
	"internal/dwline":    {"internal/elffile"},
	"verify":             {"cfi", "internal/elffile", "sframe"},
	"report":             {"cfi", "internal/dwline", "internal/elffile", "plt", "sframe", "translate"},
	"internal/survey":    {"cfi", "elfwrite", "internal/archive", "internal/elffile", "internal/heap", "internal/inode", "internal/outfile", "plt", "report", "sframe", "translate"},
}

func TestImports(t *testing.T) {
	for dir, allowed := range layers {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no Go files (%v)", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if own, ok := strings.CutPrefix(path, "cfi2sframe/"); ok && !slices.Contains(allowed, own) {
					t.Errorf("%s imports %s", file, path)
				}
			}
		}
	}
}
