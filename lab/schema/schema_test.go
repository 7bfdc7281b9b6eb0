// Package schema checks cfi2sframe's JSON reports and the conformance vectors against their schemas.
package schema

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

const (
	reports  = "../../cmd/cfi2sframe/internal/report/"
	fixtures = "../../testdata/bin/"
)

// product is cfi2sframe.
var product string

func TestMain(m *testing.M) { os.Exit(kit.Tests(m, &product)) }

// value decodes a schema or an instance into the form that package jsonschema requires.
func value(t *testing.T, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("not valid JSON: %v\n%s", err, b)
	}
	return v
}

// compile compiles a schema. If strict, the schema refuses fields that it does not describe.
func compile(t *testing.T, path string, strict bool) *jsonschema.Schema {
	t.Helper()
	doc := value(t, testfile.Read(t, path))
	if strict {
		refuseOthers(doc)
	}
	c := jsonschema.NewCompiler()
	must.Do(t, c.AddResource("schema.json", doc))
	return must.Get(c.Compile("schema.json"))(t)
}

func refuseOthers(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"]; ok {
			delete(v, "additionalProperties") // otherwise unevaluatedProperties would have no effect
			v["unevaluatedProperties"] = false
		}
		for _, e := range v {
			refuseOthers(e)
		}
	case []any:
		for _, e := range v {
			refuseOthers(e)
		}
	}
}

// run returns the output of cfi2sframe. Some subcommands report findings with exit status 1.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(product, args...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

// TestReports expects each line of a report to match its schema and to have no fields that the schema does not
// describe.
func TestReports(t *testing.T) {
	dir := t.TempDir()
	drap := testfile.Read(t, fixtures+"amd64/drap1")
	write := func(name string, off int, change ...byte) {
		b := bytes.Clone(drap)
		copy(b[off:], change)
		testfile.Write(t, filepath.Join(dir, "files", name), b)
	}
	write("good", 0)
	write("mips", 18, 8)
	write("object.o", 16, 1)
	write("32-bit", 4, 1)
	write("damaged", 40, 0xff, 0xff)
	testfile.Write(t, filepath.Join(dir, "files/script"), "#!/bin/sh\n")
	testfile.Write(t, filepath.Join(dir, "files/empty"), "")
	for _, form := range []string{"2", "3"} {
		run(t, "-q", "--format", form, fixtures+"amd64/undefra", "-o", filepath.Join(dir, "V"+form))
	}
	lookup := []string{"lookup", "--report", "json", filepath.Join(dir, "V3"), "leaf", "_start", "fp_lost+0xe", "0"}
	convert := []string{"-r", "--dry-run", "--report", "json", "--skip-unsupported"}
	for _, tt := range []struct {
		schema string
		lines  int // the minimum
		args   []string
	}{
		{reports + "report.schema.json", 20, append(convert, "--format", "1", fixtures+"amd64")},
		{reports + "report.schema.json", 50, append(convert, "--format", "2", fixtures)},
		{reports + "report.schema.json", 50, append(convert, "--format", "3", fixtures)},
		{reports + "report.schema.json", 1, []string{
			"--dry-run", "--skip-unsupported", "--report", "json", filepath.Join(dir, "files/script")}},
		{reports + "report.schema.json", 2, []string{
			"check", "--report", "json", filepath.Join(dir, "V2"), filepath.Join(dir, "V3")}},
		{reports + "report.schema.json", 1, []string{
			"check", "--report", "json", "--for", "glibc", filepath.Join(dir, "V3")}},
		{reports + "report.schema.json", 2, append(convert, "--min-unwindable", "99", fixtures+"amd64/drap1",
			"missing")},
		{reports + "report.schema.json", 1, lookup},
		{reports + "report.schema.json", 1, append(lookup, "--cfi")},
	} {
		s := compile(t, tt.schema, true)
		n := 0
		for line := range bytes.Lines(run(t, tt.args...)) {
			if err := s.Validate(value(t, line)); err != nil {
				t.Errorf("%v: %v\n%s", tt.args, err, line)
			}
			n++
		}
		if n < tt.lines {
			t.Errorf("%v: %d lines, want at least %d", tt.args, n, tt.lines)
		}
	}
}

// TestAllFields expects a report in which every field is set to match its schema.
func TestAllFields(t *testing.T) {
	b := testfile.Read(t, reports+"testdata/full.json")
	if err := compile(t, reports+"report.schema.json", true).Validate(value(t, b)); err != nil {
		t.Error(err)
	}
}

// TestVectors checks the files of vectors against their schema, and expects the schema to reject wrong files.
func TestVectors(t *testing.T) {
	s := compile(t, "../../conformance/vectors.schema.json", false)
	names, err := filepath.Glob("../../conformance/vectors/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range names {
		if err := s.Validate(value(t, testfile.Read(t, name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := `{"about":"x","vectors":[{"name":"2-amd64/x","feature":"cfa","format":"2","abi":"amd64","about":"x",` +
		`"address":"0x0","section":"00","expect":[["0x0",{"cfa":["sp",8],"ra":["cfa",-8,"*"]}],["0x1",null],` +
		`["0x2","?"],["0x3",{"outermost":true}],["0x4"]]}]}`
	for _, change := range []struct{ old, new string }{
		{"", ""}, {`"2-amd64/x"`, `3`}, {`"format":"2"`, `"format":"4"`}, {`"amd64",`, `"mips",`}, {`"00"`, `"0"`},
		{`"00"`, `"0G"`}, {`"0x0"`, `"0"`}, {`["sp",8]`, `["sp"]`}, {`["sp",8]`, `["x",8]`},
		{`["sp",8]`, `["sp",8,"!"]`}, {`"outermost":true`, `"outermost":false`}, {`"cfa":["sp",8],`, ``},
		{`"cfa":`, `"cfb":`}, {`"expect":`, `"refuse":{"what":"x","pcs":[]},"expect":`}, {`"?"`, `"!"`},
		{`,["0x4"]`, ``},
	} {
		err := s.Validate(value(t, []byte(strings.Replace(good, change.old, change.new, 1))))
		if (err == nil) != (change.old == "") {
			t.Errorf("%s instead of %s: %v", change.new, change.old, err)
		}
	}
}
