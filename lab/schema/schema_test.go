// Package schema holds what the product writes in JSON, and the conformance vectors, to their schemas.
package schema

import (
	"bytes"
	"cmp"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// value returns JSON as schemas take it, and are made of.
func value(t testing.TB, b []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("this is no JSON: %v\n%s", err, b)
	}
	return v
}

// compile returns the first of some schemas. The others are those that it refers to, by their $id.
func compile(t testing.TB, schemas ...any) *jsonschema.Schema {
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
