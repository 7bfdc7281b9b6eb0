// Package vector reads the vectors in the directory conformance: sections with the expected answers.
// conformance/README.md describes the format.
package vector

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A File is a file of vectors.
type File struct {
	About   string   `json:"about"`
	Vectors []Vector `json:"vectors"`
}

// A Vector is a section with the expected answers.
type Vector struct {
	Name    string   `json:"name"`
	Feature string   `json:"feature"`
	Format  string   `json:"format"` // 1, 2, 2e1, 2e2 or 3
	ABI     string   `json:"abi"`
	About   string   `json:"about"`
	Source  string   `json:"source,omitempty"` // empty if handwritten
	Text    string   `json:"text,omitempty"`   // section of the format's specification
	Address Hex      `json:"address"`
	Section Bytes    `json:"section"`
	Expect  Expects  `json:"expect,omitempty"`
	Refuse  *Refusal `json:"refuse,omitempty"`
}

// An Expect gives the row for all pcs in [From, To), or nil if they have no row.
type Expect struct {
	From, To Hex
	Row      *Row
}

// Expects are sorted by address. In a file, an element consists of an address and the row from there to the next
// element; the last element is only an address. A row "?" means no expectation.
type Expects []Expect

// Add appends the row for [begin, end). The end of the address space is 0.
func (e *Expects) Add(begin, end uint64, row *Row) {
	if n := len(*e); n > 0 && (*e)[n-1].To == Hex(begin) && Same((*e)[n-1].Row, row) {
		(*e)[n-1].To = Hex(end)
	} else if begin != end && begin <= end-1 {
		*e = append(*e, Expect{Hex(begin), Hex(end), row})
	}
}

func (e *Expects) UnmarshalJSON(b []byte) error {
	var all [][]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*e = nil
	for i, x := range all {
		last := i == len(all)-1
		if len(x) != 2 && !last || len(x) != 1 && last {
			return fmt.Errorf("%s: use [address, row], and [address] at the end", x)
		}
		var at Hex
		if err := json.Unmarshal(x[0], &at); err != nil {
			return err
		}
		if i > 0 && string(all[i-1][1]) != `"?"` {
			old := Expect{To: at}
			if err := json.Unmarshal(all[i-1][0], &old.From); err != nil {
				return err
			}
			if err := json.Unmarshal(all[i-1][1], &old.Row); err != nil {
				return err
			}
			if at-1 < old.From { // at may be 0, the end of the address space
				return fmt.Errorf("%#x is not after %#x", at, old.From)
			}
			*e = append(*e, old)
		}
	}
	return nil
}

// A Refusal says why readers must refuse a section.
type Refusal struct {
	What string `json:"what"`
	PCs  []Hex  `json:"pcs"` // must have no row if the section is not refused as a whole
}

// A Row is the answer for a pc.
type Row struct {
	Outermost bool   `json:"outermost,omitempty"`
	CFA       *Rule  `json:"cfa,omitempty"`
	RA        *Rule  `json:"ra,omitempty"` // nil: unchanged
	FP        *Rule  `json:"fp,omitempty"` // nil: unchanged
	Signed    string `json:"signed,omitempty"`
	Signal    bool   `json:"signal,omitempty"`
}

// A Rule is a base (cfa, sp, fp, or r with a DWARF number), an offset, and whether to load: ["cfa", -8, "*"].
type Rule struct {
	Base   string
	Offset int64
	Deref  bool
}

func (r *Rule) UnmarshalJSON(b []byte) error {
	var deref string
	parts := []any{&r.Base, &r.Offset, &deref}
	err := json.Unmarshal(b, &parts)
	r.Deref = deref == "*"
	if n := len(parts); err != nil || n < 2 || n > 3 || r.Deref != (n == 3) {
		return fmt.Errorf("rule %s: use [base, offset] or [base, offset, \"*\"]", b)
	}
	return nil
}

func (r *Rule) String() string {
	if r == nil {
		return "same"
	}
	s := fmt.Sprintf("%s%+d", r.Base, r.Offset)
	if r.Deref {
		return "*(" + s + ")"
	}
	return s
}

func (r *Row) String() string {
	switch {
	case r == nil:
		return "none"
	case r.Outermost && r.Signal:
		return "outermost, signal frame"
	case r.Outermost:
		return "outermost"
	}
	s := fmt.Sprintf("CFA %v, RA %v, FP %v", r.CFA, r.RA, r.FP)
	if r.Signed != "" {
		s += ", signed with key " + r.Signed
	}
	if r.Signal {
		s += ", signal frame"
	}
	return s
}

// Same reports whether two answers are equivalent: rules based on the CFA's register may be based on the CFA instead.
func Same(a, b *Row) bool { return a.Normal().String() == b.Normal().String() }

// Normal returns the row in normal form: rules that use the CFA's register are made relative to the CFA.
func (r *Row) Normal() *Row {
	if r == nil || r.CFA == nil || r.CFA.Deref {
		return r
	}
	n := *r
	for _, rule := range []**Rule{&n.RA, &n.FP} {
		if *rule != nil && (*rule).Base == r.CFA.Base {
			*rule = &Rule{"cfa", (*rule).Offset - r.CFA.Offset, (*rule).Deref}
		}
	}
	return &n
}

// A Hex is a hexadecimal string in JSON, because many programs read JSON numbers as float64.
type Hex uint64

func (h Hex) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint64(h)), nil }

func (h *Hex) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
	*h = Hex(v)
	return err
}

// Bytes are a hexadecimal string in JSON.
type Bytes []byte

func (b Bytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b), nil }

func (b *Bytes) UnmarshalText(text []byte) error {
	var err error
	*b, err = hex.AppendDecode(nil, text)
	return err
}

// PCs returns the addresses to ask about: the first, the last and a middle one of each range, in this order.
func (v *Vector) PCs() []Hex {
	var pcs []Hex
	for _, e := range v.Expect {
		last := e.To - 1 // wraps around if e.To is 0, the end of the address space
		pcs = append(pcs, e.From, e.From+(last-e.From)/2, last)
	}
	if v.Refuse != nil {
		pcs = append(pcs, v.Refuse.PCs...)
	}
	return pcs
}

// Load reads all vector files in a directory, sorted by name.
func Load(dir string) ([]Vector, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no vector files (*.json)", dir)
	}
	slices.Sort(names)
	var all []Vector
	seen := make(map[string]bool)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var f File
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, v := range f.Vectors {
			if seen[v.Name] {
				return nil, fmt.Errorf("%s: two vectors have the name %s", name, v.Name)
			}
			seen[v.Name] = true
			all = append(all, v)
		}
	}
	return all, nil
}
