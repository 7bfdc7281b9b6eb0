package report_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestSchemaFields checks that the schema and the Go types have the same fields, that each has a description, and that
// those always present are required.
func TestSchemaFields(t *testing.T) {
	var root map[string]any
	must.Do(t, json.Unmarshal([]byte(report.JSONSchema), &root))
	// resolve follows a reference within the document, and adds the keys next to it.
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
			properties = maps.Clone(properties)
			required := make(map[any]bool)
			for _, name := range s["required"].([]any) {
				required[name] = true
			}
			for _, f := range reflect.VisibleFields(typ) {
				name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
				if !f.IsExported() || f.Anonymous { // VisibleFields returns embedded fields
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
	compare("", reflect.TypeFor[report.Removed](), defs["removed"].(map[string]any))
	compare("", reflect.TypeFor[report.Check](), defs["check"].(map[string]any))
}

// TestSchemaKept expects the schema to list the reasons of package convert and that of the command, and no others.
func TestSchemaKept(t *testing.T) {
	var root struct {
		Defs struct {
			Kept struct {
				Properties struct{ Kept struct{ Enum []string } }
			}
		} `json:"$defs"`
	}
	must.Do(t, json.Unmarshal([]byte(report.JSONSchema), &root))
	source := testfile.Read(t, "../../../../convert/reason.go")
	var want []string
	for _, m := range regexp.MustCompile(`Reason = "([a-z0-9-]+)"`).FindAllSubmatch(source, -1) {
		want = append(want, string(m[1]))
	}
	want = append(want, "failed")
	if got := root.Defs.Kept.Properties.Kept.Enum; len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("reasons %q; want %q", got, want)
	}
}

// TestSchemaCodeReasons expects the schema and docs/code.md to list the reasons of package code.
func TestSchemaCodeReasons(t *testing.T) {
	var root struct {
		Defs struct {
			Reason struct{ Enum []string } `json:"code_reason"`
		} `json:"$defs"`
	}
	must.Do(t, json.Unmarshal([]byte(report.JSONSchema), &root))
	find := func(path, pattern string) (names []string) {
		text := testfile.Read(t, "../../../../"+path)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return names
	}
	want := find("internal/code/rows.go", `: "(code-[a-z-]+)"`)
	if got := root.Defs.Reason.Enum; len(want) < 8 || !slices.Equal(got, want) {
		t.Errorf("the schema has %q; want %q", got, want)
	}
	if got := find("docs/code.md", "(?m)^\\| `(code-[a-z-]+)` \\|"); !slices.Equal(got, want) {
		t.Errorf("docs/code.md has %q; want %q", got, want)
	}
}
