package generate

import (
	_ "embed"
	"fmt"
	"strings"

	"cfi2sframe/lab/conformance/vector"
)

// refuseForms are the formats and machines of sections that are to be refused: a machine for each byte order.
var refuseForms = []form{
	{"1", amd64}, {"1", aarch64BE}, {"2", amd64}, {"2", aarch64BE},
	{"2e1", amd64}, {"2e1", s390x}, {"3", amd64}, {"3", s390x},
}

//go:embed refuse.txt
var refuseText string

// refuse returns the vectors of a form that are to be refused.
func refuse(f form) (out []vector.Vector) {
	m := &maker{form: f}
	var functions string
	var pcs []vector.Hex
	for line := range strings.Lines(refuseText) {
		line = strings.TrimSuffix(line, "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "section":
			functions = rest
		case "ask":
			pcs = nil
			for _, w := range strings.Fields(rest) {
				pcs = append(pcs, vector.Hex(number(w)))
			}
		default:
			cells := cellsOf(line)
			name, changes, what, text := "refuse-"+cells[0], strings.Fields(cells[2]), cells[3], cells[4]
			if !f.is(cells[1]) {
				continue
			}
			from, plain := f, functions
			if rest, ok := strings.CutPrefix(functions, "s390x "); ok {
				from.machine, plain = s390x, rest
			}
			s := from.new(m.parse(plain)...)
			s.dontSort = true
			feature := strings.Join(strings.SplitN(name, "-", 3)[:2], "-")
			out = append(out, vector.Vector{
				Name: f.String() + "/" + name, Feature: feature, Format: f.format, ABI: f.name, About: what, Text: text,
				Address: vector.Hex(s.addr), Section: s.change(changes), Refuse: &vector.Refuse{What: what, PCs: pcs},
			})
		}
	}
	return out
}

// A field is a place in a section.
type field struct{ at, size int }

// change returns the bytes of a section with changes.
func (s *section) change(changes []string) []byte {
	b, at := s.encode()
	fields := map[string]field{
		"magic": {0, 2}, "version": {2, 1}, "flags": {3, 1}, "abi": {4, 1}, "aux": {7, 1},
		"fdes": {8, 4}, "fres": {12, 4}, "frelen": {16, 4}, "fdeoff": {20, 4}, "freoff": {24, 4},
		"offset": {at.fdes + 8, 4}, "rows": {at.fdes + 12, 4}, "info": {at.fdes + 16, 1},
	}
	if attr := at.attrs[0]; s.version() == 3 {
		fields["offset"], fields["rows"] = field{at.fdes + 12, 4}, field{attr, 2}
		fields["info"], fields["kind"] = field{attr + 2, 1}, field{attr + 3, 1}
	}
	if rows := at.rows[0]; len(rows) > 1 {
		fields["info2"] = field{rows[1] + s.functions[0].width, 1}
	}
	for _, c := range changes {
		i := strings.IndexAny(c, "=+")
		key, value := c[:i], c[i+1:]
		if value == "end" {
			value = fmt.Sprint(len(b) - at.fres)
		}
		n := number(value)
		if key == "cut" && n < 0 {
			n += int64(len(b))
		}
		if key == "cut" {
			b = b[:n]
			continue
		}
		f, ok := fields[key]
		if !ok {
			panic(fmt.Sprintf("field %q", key))
		}
		switch {
		case c[i] == '+':
			b[f.at] |= byte(n)
		case f.size == 1:
			b[f.at] = byte(n)
		case f.size == 2:
			s.order.PutUint16(b[f.at:], uint16(n))
		default:
			s.order.PutUint32(b[f.at:], uint32(n))
		}
	}
	return b
}
