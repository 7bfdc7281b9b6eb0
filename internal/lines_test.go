package internal_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"cfi2sframe/internal/testkit/testfile"
)

// TestLines expects lines of at most 120 columns in Go, C, shell and Markdown. Rows of tables and URLs cannot wrap.
func TestLines(t *testing.T) {
	names := regexp.MustCompile(`\.(go|c|cc|h|sh|md)$`)
	script := regexp.MustCompile(`^#!.*sh\n`)
	checked := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !names.MatchString(path) && filepath.Ext(path) != "":
			return nil
		}
		text := string(testfile.Read(t, path))
		if !names.MatchString(path) && !script.MatchString(text) {
			return nil
		}
		checked++
		number := 0
		for line := range strings.Lines(text) {
			number++
			row := filepath.Ext(path) == ".md" && strings.HasPrefix(line, "|")
			columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    "))
			if columns > 120 && !row && !strings.Contains(line, "://") {
				t.Errorf("%s:%d: %d columns; at most 120 are allowed", path, number, columns)
			}
		}
		return nil
	})
	if err != nil || checked < 500 {
		t.Errorf("%d files, error %v", checked, err)
	}
}
