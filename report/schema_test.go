package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cfi2sframe/convert"
	"cfi2sframe/internal/lab/schema"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// convertFile returns the coverage of a file.
func convertFile(t *testing.T, path string, version sframe.Version, out string) (*report.Coverage, error) {
	t.Helper()
	res, err := convert.File(context.Background(), path, filepath.Join(t.TempDir(), out), convert.FileOptions{Options: convert.Options{Version: version}})
	if err != nil {
		return nil, err
	}
	return res.Coverage[0], nil
}

// fixtures returns the coverage of all test programs in all formats, by name.
func fixtures(t *testing.T) map[string]*report.Coverage {
	t.Helper()
	paths, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := make(map[string]*report.Coverage)
	for _, path := range paths {
		dir, file := filepath.Split(path)
		abi := filepath.Base(dir)
		for _, v := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
			if v == sframe.V1 && abi == "s390x" { // which format 1 does not know
				continue
			}
			c, err := convertFile(t, path, v, file)
			switch {
			case errors.Is(err, convert.ErrNoCode):
			case err != nil:
				t.Fatalf("%s: %v", path, err)
			default:
				all[fmt.Sprintf("%s/%s V%d", abi, file, v)] = c
			}
		}
	}
	return all
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return schema.Compile(t, schema.Value(t, []byte(report.JSONSchema)))
}

// document returns the JSON form as the validator takes it.
func document(t *testing.T, c *report.Coverage) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := c.JSON(&b); err != nil {
		t.Fatal(err)
	}
	return schema.Value(t, b.Bytes()).(map[string]any)
}

func TestSchemaFixtures(t *testing.T) {
	s := compileSchema(t)
	var all []*report.Coverage
	for name, c := range fixtures(t) {
		if err := s.Validate(document(t, c)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.ABI == "amd64" && c.Format == 2 {
			all = append(all, c)
		}
	}
	if err := s.Validate(document(t, report.Sum("all", all))); err != nil {
		t.Errorf("sum: %v", err)
	}
}

// fullCoverage has every field set.
func fullCoverage() *report.Coverage {
	return &report.Coverage{
		Schema: report.Schema, File: "prog", Kept: "current", Output: "out", ABI: "amd64", Format: 2,
		Sources: []report.Source{{Name: ".debug_frame", Size: 9, FDEs: 1}}, DebugFile: "prog.debug",
		Functions: 1, FDEs: 1, FREs: 2, Described: 30, Covered: 20, Topmost: 3, Outermost: 4, PLT: 5,
		Reasons: []report.Reason{{Name: "drap", Text: "words", Functions: 1, Ranges: 1, Bytes: 10, Format3: 10, Loss: true}},
		Gaps: []report.Gap{{
			Function: "f()", Symbol: "_Z1fv", Offset: 1, Section: ".text", Begin: 1, End: 11, Source: "f.cc", Line: 7, Reason: "drap",
			Text: "words", Column: "CFA", Rule: "r10+0", Cause: "why", Format3: true, FDE: ".debug_frame+0x18",
		}},
		Omitted: 1,
		Uncovered: report.Uncovered{
			Bytes: 8, Omitted: 1,
			Sections: []report.UncoveredSection{{
				Name: ".text", Begin: 4096, Size: 64, Bytes: 8, Ranges: []report.UncoveredRange{{Begin: 4100, End: 4108, Bytes: 8}},
			}},
			Functions: []report.UncoveredFunction{{Function: "g()", Symbol: "_Z1gv", Section: ".text", Begin: 4, Size: 8, Bytes: 8}},
		},
		Dropped:   report.Dropped{ZeroLength: 1, Discarded: 2, Overlapped: 3},
		Malformed: report.Malformed{Count: 1, Errors: []string{".debug_frame+0x40: words"}},
		MovedCode: 50, Unsigned: true, Notes: []string{"words"}, Warnings: []string{"words"}, Size: 100, EHFrame: 200, EHHdr: 12, Verified: true,
	}
}

// TestJSONWhole compares with a document that is written at once.
func TestJSONWhole(t *testing.T) {
	full := fullCoverage()
	full.Gaps = append(full.Gaps, report.Gap{Function: `"gaps": null`, Reason: "drap"})
	full.File = `"sections": null`
	full.Uncovered.Sections = append(full.Uncovered.Sections, full.Uncovered.Sections[0])
	empty := &report.Coverage{Gaps: []report.Gap{}, Uncovered: report.Uncovered{Sections: []report.UncoveredSection{}, Functions: []report.UncoveredFunction{}}}
	for _, c := range []*report.Coverage{full, empty} {
		want, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := c.JSON(&got); err != nil || got.String() != string(want)+"\n" {
			t.Errorf("%s\n%v; this was expected:\n%s", got.String(), err, want)
		}
	}
}

// TestSchemaFields checks that the schema and the Go types have the same fields, all with a
// description, and that those are required which are always there.
func TestSchemaFields(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal([]byte(report.JSONSchema), &root); err != nil {
		t.Fatal(err)
	}
	// resolve follows a reference into the same document, to whose keys those beside it are added.
	resolve := func(s map[string]any) map[string]any {
		ref, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		merged := make(map[string]any)
		for k, v := range root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any) {
			merged[k] = v
		}
		for k, v := range s {
			merged[k] = v
		}
		return merged
	}
	var compare func(at string, typ reflect.Type, s map[string]any)
	compare = func(at string, typ reflect.Type, s map[string]any) {
		switch s = resolve(s); typ.Kind() {
		case reflect.Slice:
			compare(at+"[]", typ.Elem(), s["items"].(map[string]any))
		case reflect.Struct:
			if s["additionalProperties"] != true {
				t.Errorf("%s: new fields may not come", at)
			}
			properties, _ := s["properties"].(map[string]any)
			required := make(map[any]bool)
			for _, name := range s["required"].([]any) {
				required[name] = true
			}
			for _, f := range reflect.VisibleFields(typ) {
				name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
				if !f.IsExported() {
					continue
				}
				p, ok := properties[name].(map[string]any)
				if !ok {
					t.Errorf("%s.%s is not in the schema", at, name)
					continue
				}
				if text, _ := resolve(p)["description"].(string); text == "" {
					t.Errorf("%s.%s has no description", at, name)
				}
				if required[name] != (option == "") {
					t.Errorf("%s.%s: required is %v, the JSON tag says %q", at, name, required[name], option)
				}
				compare(at+"."+name, f.Type, p)
				delete(properties, name)
				delete(required, name)
			}
			for name := range properties {
				t.Errorf("%s.%s is in the schema only", at, name)
			}
			for name := range required {
				t.Errorf("%s.%s is required only", at, name)
			}
		}
	}
	defs := root["$defs"].(map[string]any)
	compare("", reflect.TypeFor[report.Coverage](), defs["file"].(map[string]any))
	compare("", reflect.TypeFor[report.Kept](), defs["kept"].(map[string]any))
	compare("", reflect.TypeFor[report.Package](), defs["package"].(map[string]any))
	compare("", reflect.TypeFor[report.Removed](), defs["removed"].(map[string]any))
	compare("", reflect.TypeFor[report.Check](), defs["check"].(map[string]any))
}

// TestSchemaKept expects the form of a file that stayed as it was to be what the schema says, whole or not at all.
func TestSchemaKept(t *testing.T) {
	s := compileSchema(t)
	for _, k := range []report.Kept{
		{Schema: report.Schema, File: "script", Kept: "not-elf", Why: "words"}, {Schema: report.Schema, File: "script", Kept: "of another kind", Why: "words"},
	} {
		var b bytes.Buffer
		if err := k.JSON(&b); err != nil {
			t.Fatal(err)
		}
		doc := schema.Value(t, b.Bytes())
		if err := s.Validate(doc); (err == nil) != (k.Kept == "not-elf") {
			t.Errorf("%s: %v", k.Kept, err)
		}
		delete(doc.(map[string]any), "why")
		if s.Validate(doc) == nil {
			t.Errorf("%s: nothing says why", k.Kept)
		}
	}
}

// TestSchemaStrict breaks every field of a report in turn, by another type and by absence.
func TestSchemaStrict(t *testing.T) {
	s := compileSchema(t)
	full := document(t, fullCoverage())
	if err := s.Validate(full); err != nil {
		t.Fatal(err)
	}
	full["new_field"] = "may come"
	if err := s.Validate(full); err != nil {
		t.Errorf("new field: %v", err)
	}
	delete(full, "new_field")
	optional := map[string]bool{
		"kept": true, "output": true, "debug_file": true, "errors": true, "function": true, "symbol": true, "section": true, "source": true,
		"line": true, "column": true, "rule": true, "notes": true, "signature_removed": true, "warnings": true,
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
				if may := optional[name] && (name != "function" || !strings.HasPrefix(at, ".without_cfi")); (s.Validate(full) == nil) != may {
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
