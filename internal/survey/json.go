package survey

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// JSON writes the survey as a JSON object, which survey.schema.json describes. The fields that a merge has to know
// first come first. Lists have a line for each element.
func (s *Survey) JSON(w io.Writer) error {
	o := object{out: bufio.NewWriter(w)}
	o.field("schema", Schema)
	o.field("tool", s.Tool)
	if s.Objects {
		o.field("objects", true)
	}
	if s.Packages {
		o.field("packages", true)
	}
	list(&o, "shards", s.Shards)
	list(&o, "paths", s.Paths)
	list(&o, "abis", s.ABIs)
	list(&o, "languages", s.Languages)
	list(&o, "compilers", s.Compilers)
	o.field("total", s.Total)
	list(&o, "worst_files_by_bytes", s.WorstBytes)
	list(&o, "worst_files_by_share", s.WorstShare)
	list(&o, "worst_functions", s.WorstFunctions)
	list(&o, "errors", s.Errors)
	if s.ErrorsOmitted > 0 {
		o.field("errors_omitted", s.ErrorsOmitted)
	}
	list(&o, "files", s.Files)
	return o.end()
}

// An object is JSON that is being written.
type object struct {
	out  *bufio.Writer
	some bool // it has a field
	err  error
}

// key writes what precedes the value of a field.
func (o *object) key(name string) {
	sep := ",\n"
	if !o.some {
		sep = "{\n"
	}
	o.some = true
	o.out.WriteString(sep + `  "` + name + `": `)
}

func (o *object) value(v any) {
	b, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
	}
	o.out.Write(b)
}

func (o *object) field(name string, v any) {
	o.key(name)
	o.value(v)
}

// list writes an array, or nothing if it is empty.
func list[T any](o *object, name string, values []T) {
	if len(values) == 0 {
		return
	}
	o.key(name)
	sep := "[\n    "
	for i := range values {
		o.out.WriteString(sep)
		o.value(&values[i])
		sep = ",\n    "
	}
	o.out.WriteString("\n  ]")
}

func (o *object) end() error {
	o.out.WriteString("\n}\n")
	return errors.Join(o.err, o.out.Flush())
}
