package survey

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// JSON writes a line about all files, and a line for each file, as survey.schema.json describes.
func (s *Survey) JSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	err := e.Encode(s)
	for _, r := range s.Files {
		err = cmp.Or(err, e.Encode(r))
	}
	return cmp.Or(err, out.Flush())
}

// read reads a survey from its JSON form.
func read(name string) (*Survey, error) {
	f, _, err := outfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := new(Survey)
	d := json.NewDecoder(f)
	err = d.Decode(s)
	if err == nil && s.Schema != Schema {
		return nil, fmt.Errorf("schema %d; this version of cfi2sframe reads schema %d", s.Schema, Schema)
	}
	for err == nil {
		r := new(Record)
		if err = d.Decode(r); err == nil {
			r.Formats, r.Gaps = slices.Clone(r.Formats), slices.Clone(r.Gaps) // without space for more
			for i := range r.Gaps {
				if reason := reasons[r.Gaps[i].Reason]; reason != 0 {
					r.Gaps[i].Reason = reason.Name() // in memory once
				}
			}
			s.Files = append(s.Files, r)
		}
	}
	if err == io.EOF && s.Schema > 0 {
		return s, s.checkIndexes()
	}
	return nil, fmt.Errorf("not a survey in JSON: offset %d: %w", d.InputOffset(), err)
}

// checkIndexes returns an error if an index or a length is out of range.
func (s *Survey) checkIndexes() error {
	isPath := func(i int) bool { return i >= 0 && i < len(s.Paths) }
	for _, p := range s.Shards {
		good := p.Index > 0 && p.Index <= p.Of && p.Of <= maxShards
		for path := range p.Skipped {
			good = good && isPath(path)
		}
		for _, path := range p.Paths {
			good = good && isPath(path)
		}
		if !good {
			return errors.New("damaged: a shard has a number out of range")
		}
	}
	for _, r := range s.Files {
		if !isPath(r.Path) || r.Disk < 0 || r.Disk >= len(r.File) {
			return fmt.Errorf("damaged: file %q has a number out of range", r.File)
		}
	}
	for _, f := range s.WorstFunctions {
		if !isPath(f.Path) || f.Disk < 0 || f.Disk >= len(f.File) {
			return fmt.Errorf("damaged: a function of file %q has a number out of range", f.File)
		}
	}
	return nil
}

// check returns an error if the survey cannot be one of this version.
func (s *Survey) check() error {
	var sums Sums
	for _, r := range s.Files {
		unknown := ""
		if r.Status != "" && !slices.Contains(statuses, r.Status) {
			unknown = string(r.Status)
		}
		for _, f := range r.Formats {
			if !slices.Contains(Formats, f.Format) {
				unknown = fmt.Sprint("format ", uint8(f.Format))
			}
		}
		for _, g := range r.Gaps {
			if reasons[g.Reason] == 0 {
				unknown = g.Reason
			}
		}
		if unknown != "" {
			return fmt.Errorf("damaged: %s: unknown %.40q", report.Printable(r.File), unknown)
		}
		sums.add(r)
	}
	sums.Skipped = skippedBelow(s.Paths)
	if !reflect.DeepEqual(sums, s.Total) {
		return errors.New("damaged: the total is not the sum of the files")
	}
	return nil
}
