package page

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestPage renders a table with hostile names.
func TestPage(t *testing.T) {
	frame := NewFrame("title <b>", "<tool>")
	frame.Data.Reasons["drap"] = "stack realignment"
	columns := Columns("id", "text", "function", "name", "file", "file", "bytes", "number", "why", "reason")
	var rows [][]string
	for i := range maxStatic + 1234 {
		rows = append(rows, []string{"hidden", fmt.Sprintf("f<%d>", i), "a.out", fmt.Sprint(1000 * i), "drap",
			"symbol & more"})
	}
	table := frame.Data.Add(Table{ID: "gaps", Caption: "Gaps", Noun: "gaps", Columns: columns, First: 1,
		Falling: "bytes", Reasons: []string{"drap"}}, rows)
	none := frame.Data.Add(Table{ID: "none", Caption: "None", Noun: "files", Columns: columns, Short: true}, nil)
	text := Template(`{{template "top" .Frame}}{{template "table" .Table}}{{template "table" .None}}{{shout "x"}}`+
		`{{template "end" .Frame}}`, template.FuncMap{"shout": strings.ToUpper, "bytes": formatSize})
	var out strings.Builder
	must.Do(t, text.Execute(&out, map[string]any{"Frame": frame, "Table": table, "None": none}))
	html := out.String()
	for _, want := range []string{
		"<title>title &lt;b&gt;</title>", `<th scope="row" class="name" title="symbol &amp; more">f&lt;999&gt;</th>`,
		`<th scope="row" class="file"><a href="symbol%20&amp;%20more">a.out</a></th>`,
		`<td class="number">999,000</td>`,
		`<td class="reason r-drap"><span class="swatch" aria-hidden="true"></span>stack realignment</td>`,
		"1,234 more rows require JavaScript.", `aria-sort="descending" data-column="3"`, `"none":[]`, "X\n<footer",
		`<option value="drap">`, "Show all 2,234 gaps", "Made by &lt;tool&gt;",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, not := range []string{">hidden<", "f<0>", "f&lt;1000&gt;", ">1,000,000<", "None"} {
		before, _, _ := strings.Cut(html, `<script type="application/json"`)
		if strings.Contains(before, not) {
			t.Errorf("the page has %s", not)
		}
	}
	if strings.Count(html, `<form role="search"`) != 1 {
		t.Error("a table of many rows cannot be filtered")
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

// TestCells renders unknown and empty reasons, and rows without extra cells. A short table has no filter.
func TestCells(t *testing.T) {
	frame := NewFrame("", "")
	table := frame.Data.Add(Table{ID: "x", Columns: Columns("a", "name", "b", "file", "c", "share", "d", "reason", "e",
		"reason", "f", "text", "g", "number")}, [][]string{{"n", "f", "9.50 %", "other", "", "1000", "12345"}})
	var out strings.Builder
	funcs := template.FuncMap{"bytes": formatSize}
	must.Do(t, Template(`{{template "table" .}}`, funcs).Execute(&out, table))
	want := `<tr><th scope="row" class="name">n</th><th scope="row" class="file">f</th>` +
		`<td class="number">9.50 % <meter max="100" value="9.50"></meter></td>` +
		`<td class="reason r-other"><span class="swatch" aria-hidden="true"></span>other</td><td class="reason"></td>` +
		`<td class="text">1000</td><td class="number">12,345</td></tr>`
	if html := out.String(); !strings.Contains(html, want) || strings.Contains(html, "more rows") ||
		strings.Contains(html, "<form") || strings.Contains(html, "Show all") {
		t.Errorf("%s\nlacks\n%s", html, want)
	}
}

// formatSize replaces the function that pages use to format sizes.
func formatSize(n uint64) string { return fmt.Sprint(n, " bytes") }

// TestSplit divides code by its coverage, even if the given numbers are inconsistent, and renders the result.
func TestSplit(t *testing.T) {
	const stack = ` viewBox="0 0 1000 1" .*<rect class="unwindable" width="(\S+)" height="1"></rect>` +
		`<rect class="uncovered" x="(\S+)" width="(\S+)" height="1"></rect>` +
		`<rect class="without" x="(\S+)" width="(\S+)" height="1"></rect>`
	for _, tt := range []struct {
		code, unwindable, notCovered uint64
		want                         Split
		cards                        string
	}{
		{200, 150, 20, Split{200, 150, 20, 30},
			"75.00 % 150 bytes of 200 bytes of code; 10.00 % 20 bytes that; 15.00 % 30 bytes that no"},
		{100000, 99999, 0, Split{100000, 99999, 0, 1},
			"99.99 % 99999 bytes of 100000 bytes of code; none SFrame covers all; < 0.01 % 1 bytes that no"},
		{5, 5, 0, Split{5, 5, 0, 0},
			"100.00 % 5 bytes of 5 bytes of code; none SFrame covers all; none CFI describes all"},
		{1 << 40, 1 << 39, 1 << 38, Split{1 << 40, 1 << 39, 1 << 38, 1 << 38}, "50.00 %; 25.00 %"},
		{5, 9, 9, Split{5, 5, 0, 0}, ""},
		{5, 1, 9, Split{5, 1, 4, 0}, ""},
		{0, 0, 0, Split{}, ""},
	} {
		s := NewSplit(tt.code, tt.unwindable, tt.notCovered)
		if s != tt.want || s.Left() != s.Code-s.Unwindable {
			t.Errorf("%+v; want %+v", s, tt.want)
		}
		var out strings.Builder
		funcs := template.FuncMap{"bytes": formatSize}
		must.Do(t, Template(`{{template "cards" .}}{{template "stack" .}}`, funcs).Execute(&out, s))
		u, n := s.Unwindable, s.NotCovered
		drawn := regexp.MustCompile(stack).FindStringSubmatch(out.String())
		if drawn == nil {
			t.Fatalf("%+v: %s", s, &out)
		}
		for i, part := range []uint64{u, u, n, u + n, s.NoCFI} {
			length := must.Get(strconv.ParseFloat(drawn[i+1], 64))(t)
			if want := 1000 * float64(part) / float64(max(s.Code, 1)); math.Abs(length-want) > 0.005001 {
				t.Errorf("%+v: length %d is %v, want %v", s, i, length, want)
			}
		}
		text := strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(out.String(), " "))), " ")
		for _, want := range strings.Split(tt.cards, "; ") {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)
