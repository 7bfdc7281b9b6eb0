package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestLinks expects the relative links in installed documents to lead to installed files.
func TestLinks(t *testing.T) {
	var files []string
	for _, dir := range []string{"", "conformance/", "docs/", "integrations/*/", "walker/"} {
		pattern := "../" + dir + "*.md"
		found := must.Get(filepath.Glob(pattern))(t)
		if len(found) == 0 {
			t.Fatalf("no file matches %s", pattern)
		}
		files = append(files, found...)
	}
	installed := regexp.MustCompile(`^\.\./([A-Z]+\.md|docs/\w+\.(md|svg)|conformance/README\.md|` +
		`(walker|integrations)/.*)$`)
	links := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	checked := 0
	for _, file := range files {
		text := testfile.Read(t, file)
		for _, m := range links.FindAllSubmatch(text, -1) {
			path, heading := file, string(m[2])
			if len(m[1]) > 0 {
				path = filepath.Join(filepath.Dir(file), string(m[1]))
			}
			checked++
			if !installed.MatchString(path) {
				t.Errorf("%s: %s is not installed", file, path)
			}
			target, err := os.ReadFile(path)
			if _, e := os.Stat(path); e != nil {
				t.Errorf("%s: %s does not exist", file, m[1])
			} else if heading != "" && (err != nil || !hasHeading(string(target), heading[1:])) {
				t.Errorf("%s: %s has no heading %s", file, path, heading)
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d links", checked)
	}
}

// TestPicture expects the README's picture to show the numbers in the documents.
func TestPicture(t *testing.T) {
	cmd := exec.Command("sh", "-c", "cat ../docs/*.md | ../scripts/picture | diff - ../docs/overview.svg")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v; scripts/picture draws it\n%s", err, out)
	}
}

// hasHeading reports whether a document has a heading with the given anchor.
func hasHeading(text, anchor string) bool {
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	for line := range strings.Lines(text) {
		if title := strings.TrimSpace(strings.TrimLeft(line, "#")); strings.HasPrefix(line, "#") {
			if strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}
