package survey

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// evil is a name that would run if it were not escaped.
const evil = `</script><script>window.evil = 1</script><img src=x onerror="window.evil=1">`

// model returns a survey of n files, a third of them without losses, and of one refused file.
func model(n int) *Survey {
	records := []*Record{{File: evil, Status: damaged, Error: evil}}
	for i := range n {
		k := uint64(i*7919) % uint64(n) // in no order
		r := &Record{
			File: fmt.Sprintf("/usr/bin/a-long-name-of-a-program-%d", k), ABI: "amd64", Functions: 10,
			Described: 1000 + k*k, WithoutCFI: k + 9, Code: 1000 + k*k + k,
		}
		r.Formats = []Format{{Format: detailed, Unwindable: r.Described}}
		if reason := []string{"", "drap", "cfa-register"}[k%3]; reason != "" {
			r.Gaps = []Gap{{Reason: reason, Functions: 1, Ranges: 2, Bytes: k + 1}}
			r.Formats[0].Unwindable -= k + 1
		}
		records = append(records, r)
	}
	return New(records, Skipped{})
}

// TestRow expects each figure of a file below the name that the table has for it.
func TestRow(t *testing.T) {
	r := Record{
		File: "/usr/bin/x", ABI: "amd64", Functions: 10, Described: 1000, WithoutCFI: 87, Code: 1097,
		Formats: []Format{{Format: 2, Covered: 960}, {Format: 3, Unwindable: 770}},
		Gaps:    []Gap{{Reason: "drap", Functions: 1, Ranges: 2, Bytes: 250}},
	}
	want := map[string]string{
		"File": "/usr/bin/x", "ABI": "amd64", "Code": "1097", "Unwindable": "70.19 %", "Not unwindable": "327", // of 1097
		"Not covered": "250", "Mostly by": "drap", "In format 2": "40", "Remarks": "",
	}
	row := r.cells()
	if len(row) != len(fileColumns) || len(fileColumns) != len(want) {
		t.Errorf("%d cells below %d names: %q", len(row), len(fileColumns), row)
	}
	for i, c := range fileColumns {
		if row[i] != want[c.Name] {
			t.Errorf("%s: %q; want %q", c.Name, row[i], want[c.Name])
		}
	}
}

// TestWithoutScript expects the rows in the markup: the first ones of a large table, in its order.
func TestWithoutScript(t *testing.T) {
	s := model(1200)
	var b strings.Builder
	const worst = "/usr/bin/a-long-name-of-a-program-1199" // k of 1,199 bytes, and k+1 lost
	if err := s.HTML(&b, "/usr/bin", ""); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), `<div class="table" id="files"`)
	text, _, _ = strings.Cut(text, "</table>")
	rows := regexp.MustCompile(`(?s)<tr><th scope="row" class="file">(.*?)</th>(.*?)</tr>`).FindAllStringSubmatch(text,
		-1)
	if !strings.Contains(b.String(), "All figures are for SFrame V3, unless") {
		t.Error("the version that the figures are for is missing")
	}
	if len(rows) != 1000 || !strings.Contains(b.String(), "And 201 rows more.") {
		t.Fatalf("%d rows", len(rows))
	}
	if rows[0][1] != worst {
		t.Errorf("first row %s; want %s", rows[0][1], worst)
	}
	if !strings.Contains(rows[0][2], `<td class="number">1,200</td>`) ||
		!strings.Contains(rows[0][2], "CFA based on a register other than SP and FP</td>") {
		t.Errorf("cells of the first row: %s", rows[0][2])
	}
	if rows[999][1] == rows[998][1] || strings.Contains(text, "<script") {
		t.Error("rows are there twice, or names are not escaped")
	}
}
