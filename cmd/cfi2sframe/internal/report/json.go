package report

import (
	_ "embed"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
)

// JSONSchema is the JSON Schema (2020-12) of the reports. It documents every field.
//
//go:embed report.schema.json
var JSONSchema string

// WriteJSON writes a report, given by a pointer, as one line of JSON (JSON Lines). It quotes strings in the report that
// are not UTF-8.
func WriteJSON(w io.Writer, report any) error {
	switch r := report.(type) {
	case *Coverage:
		r.Percents = percentsOf(&r.Amounts)
	case *Check:
		r.Percents = percentsOf(&r.Amounts)
	}
	quoteStrings(reflect.ValueOf(report))
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(report)
}

// quoteStrings replaces strings that are not UTF-8, for example names of files, by Go string literals, as in the text
// report.
func quoteStrings(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); isQuoted(s) {
			v.SetString(strconv.Quote(s))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			quoteStrings(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				quoteStrings(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			quoteStrings(v.Index(i))
		}
	}
}
