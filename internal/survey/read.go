package survey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// read reads a survey from its JSON form: everything that a merge or a comparison needs, or if head is set, only
// which files it is of. Sums of paths are not read.
func read(name string, head bool) (*Survey, error) {
	f, _, err := outfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	s := new(Survey)
	err = s.decode(d, head)
	for i := range s.Shards {
		if err == nil {
			err = s.Shards[i].check(len(s.Paths))
		}
	}
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the file ends within a survey in JSON")
	case errors.As(err, &kind):
		err = fmt.Errorf("invalid %s in %q", kind.Value, kind.Field)
	}
	return nil, fmt.Errorf("offset %d: not a survey in JSON: %s", d.InputOffset(), strings.TrimPrefix(err.Error(), "json: "))
}

// decode reads the fields of a survey. Unknown ones are skipped. Paths and files are read one after the other, as
// they may be most of the file.
func (s *Survey) decode(d *json.Decoder, head bool) error {
	schema := 0
	fields := map[string]any{
		"schema": &schema, "tool": &s.Tool, "objects": &s.Objects, "packages": &s.Packages, "shards": &s.Shards,
	}
	if !head {
		fields["abis"], fields["total"], fields["worst_functions"] = &s.ABIs, &s.Total, &s.WorstFunctions
	}
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		field := fields[name]
		switch {
		case field != nil:
			err = d.Decode(field)
		case name == "paths":
			err = elements(d, func(p Part) {
				path := newPath(unraw(p.Name, p.RawName), unraw(p.Real, p.RawReal))
				path.Partial, path.Skipped = p.Partial, p.Skipped
				s.Paths = append(s.Paths, path)
			})
		case head && s.Paths != nil: // no more fields of the head follow
			return schemaError(schema)
		case name == "files" && !head:
			err = elements(d, func(r Record) {
				r.File = unraw(r.File, r.RawFile)
				// The decoder makes space for more elements.
				r.Languages, r.Compilers = slices.Clone(r.Languages), slices.Clone(r.Compilers)
				r.Formats, r.Gaps = slices.Clone(r.Formats), slices.Clone(r.Gaps)
				s.Files = append(s.Files, &r)
			})
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err == nil && name == "schema" {
			err = schemaError(schema)
		}
		if err != nil {
			return err
		}
	}
	for i := range s.WorstFunctions {
		f := &s.WorstFunctions[i]
		f.File = unraw(f.File, f.RawFile)
	}
	if err := delim(d, '}'); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after the survey")
	}
	return schemaError(schema)
}

// schemaError returns an error unless a survey has the current schema.
func schemaError(schema int) error {
	if schema != Schema {
		return fmt.Errorf("schema %d instead of %d", schema, Schema)
	}
	return nil
}

// elements reads a list, and calls add with each element.
func elements[T any](d *json.Decoder, add func(T)) error {
	if err := delim(d, '['); err != nil {
		return err
	}
	for d.More() {
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		add(v)
	}
	return delim(d, ']')
}

// delim reads a character between values.
func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("%.40q instead of %q", fmt.Sprint(t), want.String())
	}
	return err
}

// check returns an error if the survey cannot be one that cfi2sframe has written.
func (s *Survey) check() error {
	var sums Sums
	for i, r := range s.Files {
		if err := r.check(len(s.Paths)); err != nil {
			return fmt.Errorf("files, element %d: %s: %w", i+1, report.Printable(r.File), err)
		}
		sums.add(r)
	}
	for i := range s.WorstFunctions {
		if f := &s.WorstFunctions[i]; f.Disk < 0 || f.Disk > len(f.File) {
			return fmt.Errorf("worst_functions, element %d: invalid length %d of a name", i+1, f.Disk)
		}
	}
	sums.Skipped = skippedBelow(s.Paths)
	if !reflect.DeepEqual(sums, s.Total) {
		return errors.New("damaged: the total is not the sum of the files")
	}
	return nil
}

// check returns an error if a record cannot be one of a survey of some paths.
func (r *Record) check(paths int) error {
	switch {
	case r.File == "":
		return errors.New("no name")
	case r.Path < 0 || r.Path >= paths:
		return fmt.Errorf("path %d of %d", r.Path, paths)
	case r.Disk < 0 || r.Disk >= len(r.File):
		return fmt.Errorf("invalid length %d of a name", r.Disk)
	case r.Status != "" && refusalIndex(r.Status) < 0:
		return fmt.Errorf("unknown status %.40q", r.Status)
	}
	for _, f := range r.Formats {
		if !slices.Contains(Formats, f.Format) {
			return fmt.Errorf("unknown format %d", f.Format)
		}
	}
	for _, g := range r.Gaps {
		if reasons[g.Reason] == 0 {
			return fmt.Errorf("unknown reason %.40q", g.Reason)
		}
	}
	return nil
}
