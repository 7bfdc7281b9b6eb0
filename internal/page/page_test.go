package page

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"
	"testing"
)

// TestPage makes a page of a table with a hostile name.
func TestPage(t *testing.T) {
	frame := NewFrame("title <b>")
	frame.Data.Reasons["drap"] = "stack realignment"
	columns := Columns("id", "part", "function", "name", "file", "file", "bytes", "number", "why", "reason")
	var rows [][]string
	for i := range maxStatic + 1234 {
		rows = append(rows, []string{"hidden", fmt.Sprintf("f<%d>", i), "a.out", fmt.Sprint(1000 * i), "drap",
			"symbol & more"})
	}
	table := frame.Data.Add(Table{ID: "gaps", Caption: "Gaps", Noun: "gaps", Columns: columns, First: 1,
		Falling: "bytes", Reasons: []Reason{{"drap", "stack realignment"}}}, rows)
	none := frame.Data.Add(Table{ID: "none", Caption: "None", Noun: "files", Columns: columns, Short: true}, nil)
	text := Template(`{{template "top" .Frame}}{{template "table" .Table}}{{template "table" .None}}{{shout "x"}}{{template "end" .Frame}}`,
		template.FuncMap{"shout": strings.ToUpper})
	var out strings.Builder
	if err := text.Execute(&out, map[string]any{"Frame": frame, "Table": table, "None": none}); err != nil {
		t.Fatal(err)
	}
	html := out.String()
	for _, want := range []string{
		"<title>title &lt;b&gt;</title>", `<th scope="row" class="name" title="symbol &amp; more">f&lt;999&gt;</th>`,
		`<th scope="row" class="file"><a href="symbol%20&amp;%20more">a.out</a></th>`,
		`<td class="number">999,000</td>`,
		`<td class="reason r-drap"><span class="swatch" aria-hidden="true"></span>stack realignment</td>`,
		"And 1,234 rows more.", `aria-sort="descending" data-column="3"`, `"none":[]`, "X<script",
		`<option value="drap">`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, not := range []string{">hidden<", "f<0>", "f&lt;1000&gt;", ">1,000,000<"} {
		before, _, _ := strings.Cut(html, `<script type="application/json"`)
		if strings.Contains(before, not) {
			t.Errorf("the page has %s", not)
		}
	}
	if strings.Count(html, `<form role="search"`) != 1 {
		t.Error("a table that is short can be filtered, or one that is not cannot")
	}
	if n := len(table.Static()); n != maxStatic {
		t.Errorf("%d rows without a script, want %d", n, maxStatic)
	}
	for name, inlined := range map[string]string{"style-src": style, "script-src": script} {
		sum := sha256.Sum256([]byte(inlined))
		if want := name + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy,
			want) || !strings.Contains(html, inlined) {
			t.Errorf("the policy is %s, want %s", policy, want)
		}
	}
}

// TestCells shows texts that are no reason, and rows with nothing behind their columns.
func TestCells(t *testing.T) {
	frame := NewFrame("")
	table := frame.Data.Add(Table{ID: "x", Columns: Columns("a", "name", "b", "file", "c", "part", "d", "reason", "e",
		"reason", "f", "text", "g", "number")},
		[][]string{{"n", "f", "p", "other", "", "1000", "12345"}})
	var out strings.Builder
	if err := Template(`{{template "table" .}}`, nil).Execute(&out, table); err != nil {
		t.Fatal(err)
	}
	want := `<tr><th scope="row" class="name">n</th><th scope="row" class="file">f</th><th scope="row" class="part">p</th>` +
		`<td class="reason r-other"><span class="swatch" aria-hidden="true"></span>other</td><td class="reason"></td>` +
		`<td class="text">1000</td><td class="number">12,345</td></tr>`
	if html := out.String(); !strings.Contains(html, want) || strings.Contains(html, "rows more") {
		t.Errorf("%s\nlacks\n%s", html, want)
	}
}

// TestNumbers groups digits by three, and calculates percents.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "0": "0", "999": "999", "1000": "1,000", "12345": "12,345", "123456": "123,456", "1234567": "1,234,567",
		"-1000": "-1000", "0x1000": "0x1000",
	} {
		if got := Grouped(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
	for _, tt := range []struct {
		n, whole uint64
		want     string
	}{{1, 3, "33.333%"}, {0, 0, "0.000%"}, {5, 5, "100.000%"}, {1, 2, "50.000%"}} {
		if got := Part(tt.n, tt.whole); got != tt.want {
			t.Errorf("%d of %d is %s, want %s", tt.n, tt.whole, got, tt.want)
		}
	}
}
