package report

import _ "embed"

// JSONSchema is the JSON Schema (2020-12) of what Coverage.JSON writes: every field with its
// unit and meaning.
//
//go:embed report.schema.json
var JSONSchema string
