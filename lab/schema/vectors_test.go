package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVectors holds the files of vectors to their schema, and the schema to files that are wrong.
func TestVectors(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("../..", "conformance/vectors.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, value(t, b))
	names, err := filepath.Glob(filepath.Join("../..", "conformance/vectors/*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range names {
		if b, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(value(t, b)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := `{"about":"x","vectors":[{"name":"2-amd64/x","feature":"cfa","format":"2","abi":"amd64","about":"x","address":"0x0","section":"00",` +
		`"expect":[["0x0",{"cfa":["sp",8],"ra":["cfa",-8,"*"]}],["0x1",null],["0x2","?"],["0x3",{"outermost":true}],["0x4"]]}]}`
	for _, change := range []struct{ old, new string }{
		{"", ""}, {`"2-amd64/x"`, `3`}, {`"format":"2"`, `"format":"4"`}, {`"amd64",`, `"mips",`},
		{`"00"`, `"0"`}, {`"00"`,
			`"0G"`}, {`"0x0"`, `"0"`},
		{`["sp",8]`, `["sp"]`}, {`["sp",8]`, `["x",8]`}, {`["sp",8]`, `["sp",8,"!"]`}, {`"outermost":true`,
			`"outermost":false`}, {`"cfa":["sp",8],`, ``},
		{`"cfa":`, `"cfb":`}, {`"expect":`, `"refuse":{"what":"x","pcs":[]},"expect":`}, {`"?"`, `"!"`},
		{`,["0x4"]`, ``},
	} {
		if err := s.Validate(value(t, []byte(strings.Replace(good, change.old, change.new,
			1)))); (err == nil) != (change.old == "") {
			t.Errorf("%s instead of %s: %v", change.new, change.old, err)
		}
	}
}
