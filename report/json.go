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

// WriteJSON writes a Check, Diff, Kept or Removed as a JSON object in a line (JSON Lines).
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	switch v := v.(type) {
	case *Check:
		v.setPercents()
	case *Diff:
		e.SetEscapeHTML(false)
		v.Old.setPercents()
		v.New.setPercents()
	}
	return e.Encode(v)
}

// JSON writes the coverage as a JSON object in a line, which report.schema.json describes. Its lists can be long; they
// are written element by element.
func (c *Coverage) JSON(w io.Writer) error {
	frame := *c
	frame.setPercents()
	frame.Gaps, frame.Uncovered.Sections, frame.Uncovered.Functions = nil, nil, nil
	rest, err := json.Marshal(&frame)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	rest = writeList(out, rest, "gaps", c.Gaps)
	rest = writeList(out, rest, "sections", c.Uncovered.Sections)
	rest = writeList(out, rest, "functions", c.Uncovered.Functions)
	out.Write(rest)
	out.WriteByte('\n')
	return out.Flush() // which has the first error
}

// writeList writes JSON up to an empty list of the given name, with the elements of a list, and returns what follows.
func writeList[T any](out *bufio.Writer, frame []byte, name string, list []T) []byte {
	before, after, _ := bytes.Cut(frame, []byte(`"`+name+`":null`)) // a string would have its quotes escaped
	fmt.Fprintf(out, "%s%q:[", before, name)
	for i := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		b, _ := json.Marshal(&list[i]) // strings and numbers, which cannot fail
		out.Write(b)
	}
	out.WriteByte(']')
	return after
}
