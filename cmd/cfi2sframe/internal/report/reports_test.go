package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

var update = flag.Bool("update", false, "write testdata/*.json anew")

// fullCoverage returns a report with every field set.
func fullCoverage() *report.Coverage {
	return &report.Coverage{
		Schema: report.Schema, File: "prog", Kept: "current", Output: "out", BuildID: "c0de", ABI: "amd64", Format: 2,
		Sources: []report.Source{{Name: ".debug_frame", Size: 9, FDEs: 1}}, DebugFile: "prog.debug",
		Functions: 1, FDEs: 1, FREs: 2, Restricted: amounts.Restricted{Topmost: 3, TopmostLinux: 7, OnlyV3: 4},
		Amounts: amounts.Amounts{Code: 40, Unwindable: 29, Described: 30, Covered: 24, Inferred: 6, Outermost: 4,
			PLT: 5},
		Reasons: []report.Reason{
			{Name: "drap", Text: "words", Functions: 1, Ranges: 1, Bytes: 10, Loss: true},
		},
		Gaps: []report.Gap{{
			Function: "f()", Symbol: "_Z1fv", Offset: 1, Section: ".text", Begin: 1, End: 11,
			Reason: "drap", Text: "words", Column: "CFA", Rule: "r10+0", FDE: ".debug_frame+0x18",
		}},
		Omitted: 1,
		Uncovered: coverage.Uncovered{
			Bytes: 5, Padding: 3, Startup: 2, Omitted: 1,
			Sections: []coverage.UncoveredSection{{
				Name: ".text", Begin: 4096, Size: 64, Bytes: 5, Padding: 3, Startup: 2,
			}},
			Functions: []coverage.UncoveredFunction{{Function: "g()", Symbol: "_Z1gv", Section: ".text",
				Begin: 4, Size: 8, Bytes: 8, Reason: "code-indirect"}},
			Refused: []coverage.RefusedCode{{Reason: "code-indirect", Ranges: 1, Bytes: 8}},
		},
		Dropped:   report.Dropped{ZeroLength: 1, Discarded: 2, Overlapped: 3},
		Malformed: report.Malformed{Count: 1, Errors: []string{".debug_frame+0x40: words"}},
		MovedCode: 50, Unsigned: true, Notes: []string{"words"}, Warnings: []string{"words"},
		Size: 100, EHFrame: 200, EHHdr: 12, Verified: true, MergedBy: []string{"GNU ld 2.46 and later", "mold 3"},
		Error: "words",
	}
}

// evil holds names that hostile files might contain. Unless it is escaped, each name breaks out of its context in a
// page.
var evil = []string{
	`</script><script>window.evil = 1</script>`,
	`<img src=x onerror="window.evil=1">`,
	`<!--<script>`,
	`"' onmouseover=window.evil=1 x='`,
	"a\u2028b\u2029c",
	"]]>{{.}}${window.evil=1}\\",
	"\u202eright to left\x1b[31m\x00",
	"</title></textarea></style>",
	"bad \xff\xfe bytes",
}

// evilCoverage returns a report with evil names wherever a name can occur.
func evilCoverage() *report.Coverage {
	c := fullCoverage()
	all := strings.Join(evil, " ")
	c.File, c.Output, c.DebugFile, c.Malformed.Errors = all, all, all, evil
	c.Malformed.Count = len(evil)
	g := c.Gaps[0]
	c.Gaps = nil
	for _, name := range evil {
		g.Function, g.Symbol, g.Section, g.Rule = name, name, name, name
		c.Gaps = append(c.Gaps, g)
		f := c.Uncovered.Functions[0]
		f.Function, f.Symbol, f.Section = name, name, name
		c.Uncovered.Functions = append(c.Uncovered.Functions, f)
		s := c.Uncovered.Sections[0]
		s.Name, s.Begin = name, 0
		c.Uncovered.Sections = append(c.Uncovered.Sections, s)
	}
	return c
}

// TestFullJSON writes a report with every field set, and expects the file in testdata that the schema's tests use.
func TestFullJSON(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, report.WriteJSON(&b, fullCoverage()))
	path := filepath.Join("testdata", "full.json")
	if *update {
		testfile.Write(t, path, b.String())
	}
	if want := testfile.Read(t, path); !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s is\n%s; want\n%s", path, &b, want)
	}
}

// TestJSONNames expects JSON to keep apart names that are not UTF-8, and to leave other names unchanged. Go's own
// parser of string literals reads the escaped names.
func TestJSONNames(t *testing.T) {
	names := []string{
		"a\xfe", "a\xff", "a\ufffd", `a\xfe`, `"a\xfe"`, `"`, "\xfe", "\u00fc\xfe\n", "\u00fc\n", "", "a\x1b\u2028",
	}
	seen := make(map[string]bool)
	for _, name := range names {
		var b bytes.Buffer
		must.Do(t, report.WriteJSON(&b, &report.Coverage{
			File: name, Gaps: []report.Gap{{Function: name}}, Uncovered: coverage.Uncovered{
				Functions: []coverage.UncoveredFunction{{Symbol: name}}}, Warnings: []string{name},
		}))
		var c report.Coverage
		must.Do(t, json.Unmarshal(b.Bytes(), &c))
		for _, got := range []string{c.Gaps[0].Function, c.Uncovered.Functions[0].Symbol, c.Warnings[0]} {
			if got != c.File {
				t.Errorf("%q is %q and %q", name, got, c.File)
			}
		}
		if seen[c.File] {
			t.Errorf("%q: two names are %q", name, c.File)
		}
		seen[c.File] = true
		read := c.File
		if !utf8.ValidString(name) || strings.HasPrefix(name, `"`) {
			read = must.Get(strconv.Unquote(c.File))(t)
		}
		if read != name {
			t.Errorf("%q is %q", name, c.File)
		}
	}
}
