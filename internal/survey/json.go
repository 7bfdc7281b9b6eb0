package survey

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"iter"
	"slices"
	"unicode/utf8"

	"cfi2sframe/sframe"
)

// An entry is the JSON form of a line. What is empty or zero is left out.
type entry struct {
	File       string        `json:"file"`
	RawFile    []byte        `json:"file_raw,omitempty"` // the same, if it is no UTF-8
	Disk       int           `json:"disk,omitzero"`      // how many bytes of the name are that of the file on the disk, if it is in one
	Path       int           `json:"path,omitzero"`      // index
	ABI        string        `json:"abi,omitzero"`
	Languages  []string      `json:"languages,omitempty"` // sorted
	Compilers  []string      `json:"compilers,omitempty"` // sorted
	Status     string        `json:"status,omitzero"`     // unless it is "cfi"
	Error      string        `json:"error,omitzero"`
	DRAP       bool          `json:"drap,omitzero"`
	OtherCFA   bool          `json:"non_sp_fp_cfa,omitzero"`
	Functions  uint64        `json:"functions,omitzero"`
	Described  uint64        `json:"described,omitzero"`
	WithoutCFI uint64        `json:"without_cfi,omitzero"`
	Formats    []entryFormat `json:"formats,omitempty"` // those that are for the file
	Gaps       []entryGap    `json:"gaps,omitempty"`
}

type entryFormat struct {
	Format    sframe.Version `json:"format"`
	Functions *uint64        `json:"functions,omitempty"` // unless they are those of the file
	Whole     uint64         `json:"functions_covered,omitzero"`
	Described *uint64        `json:"described,omitempty"` // unless it is that of the file
	Covered   uint64         `json:"covered,omitzero"`
	Outermost uint64         `json:"outermost,omitzero"`
	Topmost   uint64         `json:"topmost,omitzero"`
}

type entryGap struct {
	Reason    string `json:"reason"`
	Functions uint64 `json:"functions,omitzero"`
	Ranges    uint64 `json:"ranges,omitzero"`
	Bytes     uint64 `json:"bytes,omitzero"`
}

// entry returns the JSON form of a line.
func (l *line) entry() entry {
	e := entry{
		File: l.file, RawFile: raw(l.file), Path: int(l.path), Languages: l.origin.languages, Compilers: l.origin.compilers, Error: l.message, DRAP: l.drap, OtherCFA: l.otherCFA,
		Functions: uint64(l.functions), Described: l.described, WithoutCFI: l.withoutCFI,
	}
	if l.disk != l.file {
		e.Disk = len(l.disk)
	}
	if l.abi != 0 {
		e.ABI = l.abi.String()
	}
	if l.status != statusCFI {
		e.Status = refusals[l.status].name
	}
	for i := range l.formats {
		f := &l.formats[i]
		if f.Format == 0 {
			continue
		}
		to := entryFormat{Format: f.Format, Whole: uint64(f.Whole), Covered: f.Covered, Outermost: f.Outermost, Topmost: f.Topmost}
		if f.Functions != l.functions {
			n := uint64(f.Functions)
			to.Functions = &n
		}
		if f.Described != l.described {
			to.Described = &f.Described
		}
		e.Formats = append(e.Formats, to)
	}
	for _, g := range l.gaps {
		e.Gaps = append(e.Gaps, entryGap{g.reason.Name(), uint64(g.Functions), uint64(g.Ranges), g.Bytes})
	}
	return e
}

// raw returns the bytes of a name that JSON cannot have as it is.
func raw(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

// Shards are what a survey has of those that several paths were divided into together.
type Shards struct {
	Paths   []int    `json:"paths,omitempty"` // indexes, if these are not all
	Of      int      `json:"of"`
	Divided Division `json:"divided"`
	Have    []int    `json:"have"`
	Parts   []Piece  `json:"parts"` // what is known of each of those
}

// A Piece is what has to be known of a shard, so that it counts once.
type Piece struct {
	Shard   int           `json:"shard"`
	Digest  string        `json:"digest"` // of the files
	Skipped []PathSkipped `json:"skipped,omitempty"`
}

// PathSkipped says what a shard has not examined below a path.
type PathSkipped struct {
	Path int `json:"path,omitzero"` // index
	Skipped
}

// shard says what the survey is of.
func (s *Survey) shard(shard Shard, divided Division) Shards {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, l := range s.lines {
		e.Encode(l.entry())
	}
	p := Piece{Shard: shard.Index}
	for i := range s.roots {
		if skipped := s.roots[i].skipped; skipped != (Skipped{}) {
			p.Skipped = append(p.Skipped, PathSkipped{i, skipped})
		}
	}
	p.Digest = hex.EncodeToString(h.Sum(nil)[:digestSize])
	return Shards{Of: shard.Of, Divided: divided, Have: []int{shard.Index}, Parts: []Piece{p}}
}

// JSON writes the survey as a JSON object, which survey.schema.json describes. What says how to read the rest comes first,
// and lists have a line for each of what they have.
func (s *Survey) JSON(w io.Writer) error {
	o := object{out: bufio.NewWriter(w)}
	o.field("schema", s.Schema)
	o.field("tool", s.Tool)
	if s.Objects {
		o.field("objects", true)
	}
	if s.Packages {
		o.field("packages", true)
	}
	list(&o, "shards", slices.Values(s.Shards))
	all := make([]int, len(s.roots))
	for i := range all {
		all[i] = i
	}
	list(&o, "paths", compacted(s.parts(all)))
	list(&o, "abis", compacted(slices.Values(s.ABIs)))
	list(&o, "languages", compacted(slices.Values(s.Languages)))
	list(&o, "compilers", compacted(slices.Values(s.Compilers)))
	o.field("total", s.Total.compact())
	list(&o, "worst_files_by_bytes", slices.Values(s.WorstBytes))
	list(&o, "worst_files_by_share", slices.Values(s.WorstShare))
	list(&o, "worst_functions", func(yield func(BadFunction) bool) {
		for _, f := range s.WorstFunctions {
			if f.disk != f.File {
				f.Disk = len(f.disk)
			}
			if f.RawFile = raw(f.File); !yield(f) {
				return
			}
		}
	})
	list(&o, "errors", slices.Values(s.Errors))
	if s.ErrorsOmitted > 0 {
		o.field("errors_omitted", s.ErrorsOmitted)
	}
	list(&o, "files", func(yield func(entry) bool) {
		for _, l := range s.lines {
			if !yield(l.entry()) {
				return
			}
		}
	})
	return o.end()
}

// compacted leaves out of the parts what has nothing to count.
func compacted(parts iter.Seq[Part]) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		for p := range parts {
			p.Sums, p.RawName, p.RawReal = p.Sums.compact(), raw(p.Name), raw(p.Real)
			if !yield(p) {
				return
			}
		}
	}
}

// An object is JSON that is being written.
type object struct {
	out  *bufio.Writer
	some bool // there is a field already
	err  error
}

// key writes what goes before a field.
func (o *object) key(name string) {
	sep := ",\n"
	if !o.some {
		sep = "{\n"
	}
	o.some = true
	o.out.WriteString(sep + `  "` + name + `": `)
}

// value writes a value.
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

// list writes an array, or nothing if that is empty.
func list[T any](o *object, name string, values iter.Seq[T]) {
	some := false
	for v := range values {
		if o.err != nil {
			return
		}
		if some {
			o.out.WriteString(",\n    ")
		} else {
			o.key(name)
			o.out.WriteString("[\n    ")
		}
		some = true
		o.value(v)
	}
	if some {
		o.out.WriteString("\n  ]")
	}
}

func (o *object) end() error {
	o.out.WriteString("\n}\n")
	if err := o.out.Flush(); err != nil { // which has the first error
		return err
	}
	return o.err
}
