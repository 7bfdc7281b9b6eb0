package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cfi2sframe/lab/kit"
)

// reports is where the schemas of reports are, and reports with every field set.
const reports = "../../cmd/cfi2sframe/internal/report/"

// read returns a JSON file of reports.
func read(t *testing.T, name string) any {
	t.Helper()
	b, err := os.ReadFile(reports + name)
	if err != nil {
		t.Fatal(err)
	}
	return value(t, b)
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return compile(t, read(t, "report.schema.json"))
}

// TestSchemaFixtures expects the reports on fixtures to be what the schema says.
func TestSchemaFixtures(t *testing.T) {
	s := compileSchema(t)
	for _, format := range []string{"1", "2", "3"} {
		abis := "*"
		if format == "1" {
			abis = "a*" // V1 has no s390x
		}
		files, err := filepath.Glob("../../testdata/bin/" + abis + "/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures: %v", err)
		}
		args := append([]string{"--dry-run", "--skip-unsupported", "--report", "json", "--format", format}, files...)
		lines := 0
		for line := range bytes.Lines(command(t, "", 0, args...)) {
			if err := s.Validate(value(t, line)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			lines++
		}
		if lines != len(files) {
			t.Errorf("format %s: %d reports on %d files", format, lines, len(files))
		}
	}
}

// TestSchemaKept expects the form of a file that stayed as it was to be what the schema says, whole or not at all.
func TestSchemaKept(t *testing.T) {
	s := compileSchema(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	doc := value(t, command(t, "", 0, "--dry-run", "--skip-unsupported", "--report", "json", script)).(map[string]any)
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
	doc["kept"] = "of another kind"
	if s.Validate(doc) == nil {
		t.Error("there is no such reason")
	}
	doc["kept"] = "not-elf"
	delete(doc, "why")
	if s.Validate(doc) == nil {
		t.Error("nothing says why")
	}
}

// TestSchemaLookup expects the rows that lookup prints, and reasons for none, to be what the schema says.
func TestSchemaLookup(t *testing.T) {
	s := compileSchema(t)
	out := filepath.Join(t.TempDir(), "out")
	command(t, "", 0, "-q", "--format", "3", "../../testdata/bin/amd64/undefra", "-o", out)
	for _, args := range [][]string{{"leaf", "_start", "fp_lost+0xe", "0"}, {"--cfi", "leaf", "fp_lost+0xe", "0"}} {
		doc := value(t, command(t, "", 1, append([]string{"lookup", "--report", "json", out}, args...)...))
		if err := s.Validate(doc); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		delete(doc.(map[string]any), "pcs")
		if s.Validate(doc) == nil {
			t.Errorf("%q: pcs may be absent", args)
		}
	}
}

// TestSchemaStrict breaks every field of a report in turn, by another type and by absence.
func TestSchemaStrict(t *testing.T) {
	s := compileSchema(t)
	full := read(t, "testdata/full.json").(map[string]any)
	if err := s.Validate(full); err != nil {
		t.Fatal(err)
	}
	full["new_field"] = "may come"
	if err := s.Validate(full); err != nil {
		t.Errorf("new field: %v", err)
	}
	delete(full, "new_field")
	optional := map[string]bool{
		"kept": true, "output": true, "debug_file": true, "errors": true, "function": true, "symbol": true,
		"section": true, "column": true, "rule": true, "notes": true, "signature_removed": true, "warnings": true,
		"build_id": true, "merged_by": true,
	}
	var broken int
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			if len(v) == 0 {
				t.Errorf("%s is empty", at)
			}
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), v[i])
			}
		case map[string]any:
			for name, old := range v {
				v[name] = json.Number("-1.5")
				if s.Validate(full) == nil {
					t.Errorf("%s.%s may be -1.5", at, name)
				}
				delete(v, name)
				// An uncovered function always has its name.
				if may := optional[name] &&
					(name != "function" || !strings.HasPrefix(at, ".without_cfi")); (s.Validate(full) == nil) != may {
					t.Errorf("%s.%s: may be absent is not %v", at, name, may)
				}
				v[name] = old
				broken++
				walk(at+"."+name, old)
			}
		}
	}
	walk("", full)
	if broken < 60 {
		t.Errorf("%d fields only", broken)
	}
}

// TestSchemaDiff expects a difference with everything in it, and those of real files, to be what the schema says.
func TestSchemaDiff(t *testing.T) {
	s := compile(t, read(t, "diff.schema.json"))
	if err := s.Validate(read(t, "testdata/diff.json")); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"amd64/drap1", "amd64/plt-ibt", "aarch64/pac", "s390x/prologue"} {
		var files []string
		for _, format := range []string{"2", "3"} {
			out := filepath.Join(dir, filepath.Base(name)+format)
			command(t, "", 0, "-q", "--format", format, "../../testdata/bin/"+name, "-o", out)
			files = append(files, out)
		}
		if err := s.Validate(value(t, command(t, "", 1, "diff", "--report", "json", files[0],
			files[1]))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// program is built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "schema-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cfi2sframe")
	return path, kit.BuildProduct(path)
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// command returns what cfi2sframe prints in a directory, and expects the given exit status.
func command(t *testing.T, dir string, status int, args ...string) []byte {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%v: %v: %s", args, err, &stderr)
	}
	return out
}
