package survey

import (
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A Part sums up some of the files: those of a path, of an ABI, a language or a compiler.
type Part struct {
	Name    string `json:"name"`
	RawName []byte `json:"name_raw,omitempty"` // the same, if it is no UTF-8
	Real    string `json:"leads_to,omitempty"` // of a path, if that is another because of symbolic links
	RawReal []byte `json:"leads_to_raw,omitempty"`
	Partial bool   `json:"partial,omitempty"` // of a path of which shards are missing
	Sums
}

// Sums are about a number of files. All sizes are in bytes of code.
type Sums struct {
	Files      int       `json:"files,omitzero"`         // examined
	WithCFI    int       `json:"with_cfi,omitzero"`      // of those, with CFI that describes code
	DRAP       int       `json:"drap,omitzero"`          // with an expression as the rule of a CFA, PLTs apart
	OtherCFA   int       `json:"non_sp_fp_cfa,omitzero"` // with a CFA based on another register than SP and FP, PLTs apart
	Functions  int       `json:"functions,omitzero"`     // that CFI describes
	Described  uint64    `json:"described,omitzero"`     // code that CFI describes
	WithoutCFI uint64    `json:"without_cfi,omitzero"`   // code that no CFI describes, padding included
	Formats    []Format  `json:"formats,omitempty"`
	Gaps       []Gap     `json:"gaps,omitempty"`    // in format 2, by reason, in the order of translate.Reasons
	Refused    []Refused `json:"refused,omitempty"` // files without CFI to be translated, by reason
	Skipped    Skipped   `json:"skipped,omitzero"`
}

// A Format says what one version of SFrame has of the files that it can be written for.
type Format struct {
	Format    sframe.Version `json:"format"`
	Functions int            `json:"functions,omitzero"` // that CFI describes; less than in Sums where the version is not for all
	Whole     int            `json:"functions_covered,omitzero"`
	Described uint64         `json:"described,omitzero"`
	Covered   uint64         `json:"covered,omitzero"`
	Outermost uint64         `json:"outermost,omitzero"` // code without a caller, where that is left out: nothing is lost by it
	Topmost   uint64         `json:"topmost,omitzero"`   // of Covered, by registers that are known in the topmost frame only
}

// A Gap sums up the gaps of one reason.
type Gap struct {
	Reason    string `json:"reason"`
	Text      string `json:"text"`
	Files     int    `json:"files,omitzero"`
	Functions int    `json:"functions,omitzero"`
	Ranges    int    `json:"ranges,omitzero"`
	Bytes     uint64 `json:"bytes,omitzero"`
	Loss      bool   `json:"loss,omitzero"` // false where there is nothing that a stack trace could find
}

// Refused counts the files that were refused for one reason.
type Refused struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Files  int    `json:"files,omitzero"`
}

// Skipped counts files that were not examined.
type Skipped struct {
	Objects  int `json:"objects,omitzero"`  // relocatable objects, unless asked for
	Archives int `json:"archives,omitzero"` // of those
	Other    int `json:"other,omitzero"`    // not ELF
}

// newSums returns the sums of no files.
func newSums() Sums {
	s := Sums{Formats: []Format{}, Gaps: []Gap{}, Refused: []Refused{}}
	for _, v := range Formats {
		s.Formats = append(s.Formats, Format{Format: v})
	}
	for _, r := range translate.Reasons() {
		s.Gaps = append(s.Gaps, Gap{Reason: r.Name(), Text: r.String(), Loss: r.Loss()})
	}
	for r := firstRefusal; int(r) < len(refusals); r++ {
		s.Refused = append(s.Refused, Refused{Reason: refusals[r].name, Text: refusals[r].text})
	}
	return s
}

// add adds a file.
func (s *Sums) add(l *line) {
	s.Files++
	s.WithoutCFI += l.withoutCFI
	if l.status != statusCFI {
		s.Refused[l.status-firstRefusal].Files++
		return
	}
	s.WithCFI++
	if l.drap {
		s.DRAP++
	}
	if l.otherCFA {
		s.OtherCFA++
	}
	s.Functions += l.functions
	s.Described += l.described
	for i := range l.formats {
		f, to := &l.formats[i], &s.Formats[i]
		to.Functions += f.Functions
		to.Whole += f.Whole
		to.Described += f.Described
		to.Covered += f.Covered
		to.Outermost += f.Outermost
		to.Topmost += f.Topmost
	}
	for _, g := range l.gaps {
		to := &s.Gaps[g.reason-translate.DRAP]
		to.Files++
		to.Functions += g.Functions
		to.Ranges += g.Ranges
		to.Bytes += g.Bytes
	}
}

func (s *Skipped) add(t Skipped) {
	s.Objects += t.Objects
	s.Archives += t.Archives
	s.Other += t.Other
}

// compact leaves out what has nothing to count.
func (s Sums) compact() Sums {
	s.Formats = without(s.Formats, func(f Format) bool { return f == Format{Format: f.Format} })
	s.Gaps = without(s.Gaps, func(g Gap) bool { return g == Gap{Reason: g.Reason, Text: g.Text, Loss: g.Loss} })
	s.Refused = without(s.Refused, func(r Refused) bool { return r.Files == 0 })
	return s
}

// without returns what is not empty, or nil.
func without[T any](all []T, empty func(T) bool) []T {
	var out []T
	for _, v := range all {
		if !empty(v) {
			out = append(out, v)
		}
	}
	return out
}
