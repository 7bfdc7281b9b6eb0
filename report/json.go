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

// WriteJSON writes a Check, Diff, Kept or Removed as a JSON object of many lines.
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
	rest = writeList(out, rest, "gaps", c.Gaps)
	rest = writeList(out, rest, "sections", c.Uncovered.Sections)
	rest = writeList(out, rest, "functions", c.Uncovered.Functions)
	out.Write(rest)
	out.WriteByte('\n')
	return out.Flush() // which has the first error
}

// writeList writes JSON up to an empty list of the given name, with the elements of a list, and returns what follows.
func writeList[T any](out *bufio.Writer, frame []byte, name string, list []T) []byte {
	before, after, _ := bytes.Cut(frame, []byte(`"`+name+`": null`)) // a string would have its quotes escaped
	indent := string(before[bytes.LastIndexByte(before, '\n'):])
	fmt.Fprintf(out, "%s%q: [", before, name)
	separator := ""
	for i := range list {
		b, _ := json.MarshalIndent(&list[i], indent[1:]+"  ", "  ") // strings and numbers, which cannot fail
		fmt.Fprintf(out, "%s%s  %s", separator, indent, b)
		separator = ","
	}
	if len(list) > 0 {
		out.WriteString(indent)
	}
	out.WriteByte(']')
	return after
}
