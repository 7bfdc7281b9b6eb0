package survey

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/outfile"
)

// JSONSchema is the JSON Schema (2020-12) of a line of the JSON report.
//
//go:embed survey.schema.json
var JSONSchema string

// A line is a record or, at the end, the number of files that were not examined.
type line struct {
	*Record
	Skipped *Skipped `json:"skipped,omitempty"`
}

// JSON writes a line for each file, as survey.schema.json describes, and a line that counts the files that were not
// examined.
func (s *Survey) JSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	for _, r := range s.Files {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return cmp.Or(e.Encode(line{Skipped: &s.Skipped}), out.Flush())
}

// Merge combines surveys in JSON. A file that occurs several times counts once; if its lines differ, Merge fails.
func Merge(names []string) (*Survey, error) {
	var all []*Record
	var skipped Skipped
	known := make(map[string]int) // indexes in all
	from := make(map[string]string)
	for _, name := range names {
		err := read(name, func(l *line) error {
			if l.Skipped != nil {
				skipped.add(*l.Skipped)
				return nil
			}
			i, ok := known[l.File]
			if !ok {
				known[l.File], from[l.File] = len(all), name
				all = append(all, l.Record)
				return nil
			}
			if reflect.DeepEqual(all[i], l.Record) {
				return nil
			}
			return fmt.Errorf("%s differs from the file of the same name in %s; survey it again",
				report.Printable(l.File), from[l.File])
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
		}
	}
	return New(all, skipped), nil
}

// read calls fn with each line of a file.
func read(name string, fn func(*line) error) error {
	f, _, err := outfile.OpenRegular(name)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReader(f))
	for {
		l := line{Record: &Record{}}
		err := d.Decode(&l)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a JSON survey: offset %d: %w", d.InputOffset(), err)
		}
		if l.Skipped == nil {
			err = l.check()
		}
		if err := cmp.Or(err, fn(&l)); err != nil {
			return fmt.Errorf("offset %d: %w", d.InputOffset(), err)
		}
	}
}

// check returns an error if this version could not have written the record.
func (r *Record) check() error {
	if r.File == "" {
		return errors.New("record without a file name; use the output of survey --report json")
	}
	if r.Status != "" && !slices.Contains(statuses, r.Status) {
		return fmt.Errorf("unknown status %.40q", r.Status)
	}
	for _, f := range r.Formats {
		if !slices.Contains(Formats, f.Format) {
			return fmt.Errorf("unknown format %d", uint8(f.Format))
		}
	}
	for i := range r.Gaps {
		if r.Gaps[i].reason() == 0 {
			return fmt.Errorf("unknown reason %.40q", r.Gaps[i].Reason)
		}
		r.Gaps[i].Reason = r.Gaps[i].reason().Name() // shares the string
	}
	return nil
}
