// Package schema compiles JSON schemas for tests, which hold to them what is written in JSON.
package schema

import (
	"bytes"
	"cmp"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Value returns JSON as schemas take it, and are made of.
func Value(t testing.TB, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("this is no JSON: %v\n%s", err, b)
	}
	return v
}

// Compile returns the first of some schemas. The others are those that it refers to, by their $id.
func Compile(t testing.TB, schemas ...any) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	name := func(schema any) string {
		object, _ := schema.(map[string]any)
		id, _ := object["$id"].(string)
		return cmp.Or(id, "schema.json")
	}
	for _, s := range schemas {
		if err := c.AddResource(name(s), s); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(name(schemas[0]))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
