package report

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
)

// JSON Schemas (2020-12) of Coverage.JSON and of a Diff, with the unit and meaning of every field.
var (
	//go:embed report.schema.json
	JSONSchema string
	//go:embed diff.schema.json
	DiffJSONSchema string
)

// WriteJSON writes a Check, Diff, Kept, Package or Removed as a JSON object of many lines.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if _, ok := v.(*Diff); ok {
		e.SetEscapeHTML(false)
	}
	return e.Encode(v)
}

// JSON writes the coverage as a JSON object, which report.schema.json describes. Its lists can be
// long; they are written one by one.
func (c *Coverage) JSON(w io.Writer) error {
	frame := *c
	frame.Gaps, frame.Uncovered.Sections, frame.Uncovered.Functions = nil, nil, nil
	rest, err := json.MarshalIndent(&frame, "", "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, l := range []struct {
		name, indent string
		n            int
		at           func(int) any
	}{
		{"gaps", "  ", len(c.Gaps), func(i int) any { return &c.Gaps[i] }},
		{"sections", "    ", len(c.Uncovered.Sections), func(i int) any { return &c.Uncovered.Sections[i] }},
		{"functions", "    ", len(c.Uncovered.Functions), func(i int) any { return &c.Uncovered.Functions[i] }},
	} {
		// A string would have its quotes escaped.
		before, after, _ := bytes.Cut(rest, []byte(`"`+l.name+`": null`))
		out.Write(before)
		fmt.Fprintf(out, "%q: [", l.name)
		for i := range l.n {
			b, err := json.MarshalIndent(l.at(i), l.indent+"  ", "  ")
			if err != nil {
				return err
			}
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString("\n" + l.indent + "  ")
			out.Write(b)
		}
		if l.n > 0 {
			out.WriteString("\n" + l.indent)
		}
		out.WriteByte(']')
		rest = after
	}
	out.Write(rest)
	out.WriteByte('\n')
	return out.Flush() // which has the first error
}
