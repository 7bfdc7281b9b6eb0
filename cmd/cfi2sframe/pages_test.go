package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// surveyPages surveys test programs, among them some of one name, and returns the folder of the pages.
func surveyPages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "new", "pages")
	for to, from := range map[string]string{
		"a b/drap1": "drap1", "a-b/drap1": "drap1", "<b>&%41#x": "rareg.so", "plain": "alloca",
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "bin", "amd64", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(in, to)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(in, to), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"survey", "--report-dir", out, in}, &stdout, &stderr); status != exitDone {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	if stdout.Len()+stderr.Len() > 0 {
		t.Errorf("said: %s%s", &stdout, &stderr)
	}
	return out
}

// TestSurveyPages expects a link for each file that loses something, and what the link leads to.
func TestSurveyPages(t *testing.T) {
	dir := surveyPages(t)
	b, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), `<script type="application/json" id="data">`)
	text, _, _ := strings.Cut(rest, "</script>")
	var data struct{ Tables struct{ Files [][]string } }
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	pages := make(map[string]bool)
	for _, row := range data.Tables.Files {
		link, lost := row[len(row)-1], row[3] != "0"
		if lost != (link != "") {
			t.Errorf("%s: %s bytes not covered, link %q", row[0], row[3], link)
		}
		if link == "" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, link))
		if err != nil || pages[link] {
			t.Errorf("%s: link %s, to more than one file or none: %v", row[0], link, err)
			continue
		}
		pages[link] = true
		if name := filepath.Base(row[0]); name == "drap1" && !strings.Contains(string(page), "realign") {
			t.Errorf("%s: the page does not name the function", row[0])
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 || len(pages) != 3 {
		t.Errorf("%d files, %d of them with links: %v", len(entries), len(pages), err)
	}
}

// TestSurveyMembers expects links to members of an archive to lead to what is said of them.
func TestSurveyMembers(t *testing.T) {
	dir := t.TempDir()
	libc := peer.File(t, "/usr/lib/x86_64-linux-gnu/libc.a")
	var stderr bytes.Buffer
	if status := run(t.Context(), []string{"survey", "--objects", "--report-dir", dir, libc}, &stderr,
		&stderr); status != exitDone {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	pages := make(map[string][]byte)
	for _, name := range []string{"index.html", "usr-lib-x86_64-linux-gnu-libc.a.html"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = b
	}
	links := regexp.MustCompile(`<a href="([^"#]+)#([^"]+)">([^<]+)</a>`).FindAllSubmatch(pages["index.html"], -1)
	if len(links) < 3 {
		t.Fatalf("%d links; setcontext, longjmp and vfork lose something", len(links))
	}
	for _, m := range links {
		if want := fmt.Sprintf("<details id=\"%s\">\n<summary><h3>%s</h3>", m[2],
			m[3]); !bytes.Contains(pages[string(m[1])], []byte(want)) {
			t.Errorf("%s: %q is not on page %s", m[3], want, m[1])
		}
	}
}

// TestPageNames expects names that are apart, need no quoting, and fit any file system.
func TestPageNames(t *testing.T) {
	taken := map[string]bool{surveyIndex: true}
	for _, tt := range []struct{ path, want string }{
		{"/usr/bin/ls", "usr-bin-ls.html"},
		{"usr/bin/ls", "usr-bin-ls-2.html"},
		{"/USR/bin/ls", "USR-bin-ls-3.html"},
		{"index", "index-2.html"},
		{"../..", "file.html"},
		{"a/../b c", "b-c.html"},
		{"/a\x1b</\xff" + strings.Repeat("z", 195), "a----" + strings.Repeat("z", 195) + ".html"},
		{strings.Repeat("y", 4000) + "/\n" + strings.Repeat("z", 199), strings.Repeat("z", 199) + ".html"},
	} {
		if got := pageName(tt.path, taken); got != tt.want {
			t.Errorf("%q: %s, %s expected", tt.path, got, tt.want)
		}
	}
}

// TestPagesReplaceNothing has files where pages would be.
func TestPagesReplaceNothing(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(fixtures, "drap1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, other := range []string{"a.html", surveyIndex} {
		for _, name := range []string{"a", other} {
			if err := os.WriteFile(name, b, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // once more over the pages that were written
			var out bytes.Buffer
			if status := run(t.Context(), []string{"survey", "--report-dir", ".", "a"}, &out,
				&out); status != exitError || !strings.Contains(out.String(), other+" exists and is not a page") {
				t.Errorf("%s: status %d: %s", other, status, &out)
			}
			if now, err := os.ReadFile(other); err != nil || !bytes.Equal(now, b) {
				t.Errorf("%s is replaced, error %v", other, err)
			}
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var out bytes.Buffer
			if status := run(t.Context(), []string{"survey", "--report-dir", ".", "a"}, &out,
				&out); status != exitDone {
				t.Errorf("status %d: %s", status, &out)
			}
		}
	}
}
