package report

import (
	_ "embed"
	"encoding/json"
	"io"
)

// JSON Schemas (2020-12) of Diff and of all other reports. They document every field.
var (
	//go:embed report.schema.json
	JSONSchema string
	//go:embed diff.schema.json
	DiffJSONSchema string
)

// WriteJSON writes a report as one line of JSON (JSON Lines).
func WriteJSON(w io.Writer, report any) error {
	switch r := report.(type) {
	case *Coverage:
		r.setPercents()
	case *Check:
		r.setPercents()
	case *Diff:
		r.Old.setPercents()
		r.New.setPercents()
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(report)
}
