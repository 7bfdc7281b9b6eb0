package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/translate"
)

// evil is a name that would run if it were not escaped.
const evil = `</script><script>window.evil = 1</script><img src=x onerror="window.evil=1">`

// model returns a survey of n files, of which a third are lossless, and one is refused.
func model(n int) *Survey {
	c := newCollector([]root{{name: "/usr/bin", real: "/usr/bin"}}, Options{})
	for i := range n {
		k := uint64(i*7919) % uint64(n) // in no order
		l := line{
			file: fmt.Sprintf("/usr/bin/a-long-name-of-a-program-%d", k), abi: 3, functions: 10, described: 1000 + k*k, withoutCFI: k,
			formats: make([]Format, len(Formats)),
		}
		if reason := []translate.Reason{0, translate.DRAP, translate.CFARegister}[k%3]; reason != 0 {
			l.gaps = []gapSum{{reason, translate.Sum{Functions: 1, Ranges: 2, Bytes: k + 1}}}
		}
		c.add(&candidate{name: l.file}, []line{l}, nil)
	}
	c.add(&candidate{name: evil}, []line{{file: evil, status: damaged, message: evil}}, nil)
	return c.finish()
}

// write writes the page to a file.
func write(t *testing.T, s *Survey, links map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err == nil {
		err = s.HTML(f, links)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRow expects each figure of a file below the name that the table has for it.
func TestRow(t *testing.T) {
	l := line{
		file: "/usr/bin/x", abi: 3, origin: origin{[]string{"C++", "Rust"}, []string{"rustc 1.85"}}, functions: 10, described: 1000, withoutCFI: 77,
		drap: true, otherCFA: true, formats: make([]Format, len(Formats)),
		gaps: []gapSum{{translate.DRAP, translate.Sum{Functions: 1, Ranges: 2, Bytes: 250}}},
	}
	l.formats[len(Formats)-1] = Format{Format: Formats[len(Formats)-1], Described: 1000, Covered: 900, Outermost: 60}
	want := map[string]string{
		"File": "/usr/bin/x", "ABI": "amd64", "Language": "C++ + Rust", "Compiler": "rustc 1.85", "Described": "1000", "Lost": "250", "Share": "25.00 %",
		"Mostly by": "drap", "Lost in format 3": "40", "Without CFI": "77", "Remarks": "DRAP; non-SP/FP CFA",
	}
	row := l.row(map[string]string{"/usr/bin/x": "x.html"})
	if len(row) != len(fileColumns)+1 || len(fileColumns) != len(want) || row[len(fileColumns)] != "x.html" {
		t.Errorf("%d cells below %d names: %q", len(row), len(fileColumns), row)
	}
	for i, c := range fileColumns {
		if row[i] != want[c.Name] {
			t.Errorf("%s: %q; %q was expected", c.Name, row[i], want[c.Name])
		}
	}
}

// TestWithoutScript expects the rows in the markup: the first ones of a large table, in its order.
func TestWithoutScript(t *testing.T) {
	s := model(1200)
	b, err := os.ReadFile(write(t, s, map[string]string{s.byLoss()[0].file: "a page.html#file-1"}))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), `<div class="table" id="files"`)
	text, _, _ = strings.Cut(text, "</table>")
	rows := regexp.MustCompile(`(?s)<tr><th scope="row" class="file">(.*?)</th>(.*?)</tr>`).FindAllStringSubmatch(text, -1)
	if len(rows) != 1000 || !strings.Contains(string(b), "And 201 rows more.") {
		t.Fatalf("%d rows", len(rows))
	}
	if want := `<a href="a%20page.html#file-1">` + s.WorstBytes[0].File + "</a>"; rows[0][1] != want {
		t.Errorf("first row %s, %s expected", rows[0][1], want)
	}
	if !strings.Contains(rows[0][2], `<td class="number">1,200</td>`) || !strings.Contains(rows[0][2], "CFA based on a register other than SP and FP</td>") {
		t.Errorf("cells of the first row: %s", rows[0][2])
	}
	if rows[999][1] == rows[998][1] || strings.Contains(text, "<script") {
		t.Error("rows are there twice, or names are not escaped")
	}
}
