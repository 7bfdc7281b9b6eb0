// Package plt finds PLT stubs that no CFI describes, and says from their
// instructions where their frames are.
//
// GNU ld writes CFI for its PLT on amd64 and s390x; lld and mold do not, nor does
// anyone on aarch64. The stubs are a handful of instruction sequences. A stub is
// recognised as a whole, instruction by instruction; what is not recognised is
// left alone.
//
// What is described: .plt, .plt.got, .plt.sec and .iplt of GNU ld, lld and mold, with
// and without IBT, BTI and PAC, and TLS descriptor stubs on aarch64.
package plt

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"sort"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/elffile"
)

// A Step is where the frame is from some instruction of a stub on.
type Step struct {
	Offset uint32 // in bytes from the start of the stub
	CFA    int32  // in bytes from SP
	RA     int32  // where the return address is saved, in bytes from the CFA; 0: where it was at the call
}

// A Stub is a piece of code with known frames.
type Stub struct {
	Begin, End uint64 // addresses, End excluded
	Steps      []Step // the first one at offset 0
}

// A machine describes the stubs of a machine.
type machine struct {
	align  uint64 // stubs start at multiples of it
	tokens []token
	stubs  []form
	entry  int32 // the CFA from SP where a call arrives
}

// A token is an instruction.
type token struct {
	letter byte
	code   pattern
	push   int32 // bytes by which it lowers SP
	ra     int32 // where it saves the return address, from the CFA, or 0
}

// A form is a sequence of tokens that makes a stub.
type form struct {
	seq    *regexp.Regexp // of their letters
	pushed int32          // bytes below the CFA of the call that SP is at the start
}

// A pattern is machine code in which some bits may be anything.
type pattern struct{ value, mask []byte }

// code parses a pattern of hexadecimal digits, of which ? is any.
func code(s string) pattern {
	s = strings.ReplaceAll(s, " ", "")
	value, err := hex.DecodeString(strings.ReplaceAll(s, "?", "0"))
	if err != nil {
		panic(err) // of a constant in this package
	}
	mask := make([]byte, len(value))
	for i := range s {
		if s[i] != '?' {
			mask[i/2] |= 0xf << (4 * (1 - i%2))
		}
	}
	return pattern{value, mask}
}

// word returns a pattern of one little-endian instruction of 32 bits.
func word(value, mask uint32) pattern {
	var p pattern
	for i := range 4 {
		p.value = append(p.value, byte(value>>(8*i)))
		p.mask = append(p.mask, byte(mask>>(8*i)))
	}
	return p
}

func (p pattern) match(b []byte) bool {
	if len(b) < len(p.value) {
		return false
	}
	for i := range p.value {
		if b[i]&p.mask[i] != p.value[i] {
			return false
		}
	}
	return true
}

// machines are made when they are asked for: one is, as a rule.
var machines = map[elf.Machine]func() *machine{
	elf.EM_X86_64:  amd64,
	elf.EM_AARCH64: aarch64,
	elf.EM_S390:    s390x,
}

var sectionNames = map[string]bool{".plt": true, ".plt.got": true, ".plt.sec": true, ".iplt": true}

// maxSection bounds the PLT sections that are read, in bytes of all together. Those of the largest
// programs have a few hundred KiB.
const maxSection = 2 << 20

// maxSections bounds their number. Linkers write four at most.
const maxSections = 64

// Find returns the stubs of f that the table does not describe, by address.
func Find(f *elffile.File, t *cfi.Table) ([]Stub, error) {
	known := machines[elf.Machine(f.Machine)]
	if known == nil {
		return nil, nil
	}
	m := known()
	var out []Stub
	var seen []*elffile.Section
	room := uint64(maxSection)
	for i := range f.Sections {
		s := &f.Sections[i]
		if !sectionNames[s.Name] || !s.Alloc() || !s.HasBytes() || s.Flags&uint64(elf.SHF_EXECINSTR) == 0 || s.Size > room || len(seen) == maxSections {
			continue
		}
		if off, ok := f.FileOffset(s.Addr, s.Size); !ok || off != s.Off {
			continue // it is not what runs there
		}
		if slices.ContainsFunc(seen, func(t *elffile.Section) bool { return s.Addr < t.Addr+t.Size && t.Addr < s.Addr+s.Size }) {
			continue // the same code
		}
		seen = append(seen, s)
		room -= s.Size
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		out = append(out, m.section(b, s.Addr, t)...)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Begin < out[j].Begin })
	return out, nil
}

// section finds the stubs in b, which lies at addr.
func (m *machine) section(b []byte, addr uint64, t *cfi.Table) []Stub {
	var out []Stub
	letters, starts := m.tokenize(b)
	// The start of a lazy PLT is one only if an entry jumps to it.
	starters, jumps := make(map[uint64]bool), make(map[uint64]bool)
	for i := 0; i < len(letters); {
		begin := addr + uint64(starts[i])
		if end := described(t, begin); end > begin {
			for i < len(letters) && addr+uint64(starts[i]) < end {
				i++
			}
			continue
		}
		n, f := m.match(letters[i:])
		if n == 0 || begin%m.align != 0 {
			i++
			continue
		}
		s := Stub{Begin: begin, End: addr + uint64(starts[i+n]), Steps: m.steps(f, letters[i:i+n], starts[i:])}
		if next(t, begin) >= s.End {
			out = append(out, s)
			starters[begin] = f.pushed != 0
			for k := i; k < i+n; k++ {
				if end := starts[k+1]; letters[k] == 'B' && end-starts[k] >= 5 { // a jump, on amd64
					jumps[addr+uint64(end)+uint64(int64(int32(binary.LittleEndian.Uint32(b[end-4:]))))] = true
				}
			}
		}
		i += n
	}
	return slices.DeleteFunc(out, func(s Stub) bool { return starters[s.Begin] && !jumps[s.Begin] })
}

// tokenize cuts code into tokens. Their letters, and a start more than there are
// letters, are returned; code that is no token is a letter 0 of the stub
// alignment's size.
func (m *machine) tokenize(b []byte) (letters []byte, starts []int) {
	for off := 0; off < len(b); {
		starts = append(starts, off)
		letter, size := byte(0), int(m.align)-off%int(m.align)
		for i := range m.tokens {
			if t := &m.tokens[i]; t.code.match(b[off:]) {
				letter, size = t.letter, len(t.code.value)
				break
			}
		}
		letters = append(letters, letter)
		off = min(off+size, len(b))
	}
	return letters, append(starts, len(b))
}

// match returns the number of tokens of the stub at the start, and its form.
func (m *machine) match(letters []byte) (int, *form) {
	for i := range m.stubs {
		if loc := m.stubs[i].seq.FindIndex(letters); loc != nil {
			return loc[1], &m.stubs[i]
		}
	}
	return 0, nil
}

// steps follows SP through a stub.
func (m *machine) steps(f *form, letters []byte, starts []int) []Step {
	now := Step{CFA: m.entry + f.pushed}
	steps := []Step{now}
	for i, letter := range letters {
		for j := range m.tokens {
			t := &m.tokens[j]
			if t.letter != letter || t.push == 0 {
				continue
			}
			now.CFA += t.push
			if t.ra != 0 {
				now.RA = t.ra
			}
			now.Offset = uint32(starts[i+1] - starts[0])
			steps = append(steps, now)
			break
		}
	}
	if last := len(steps) - 1; last > 0 && int(steps[last].Offset) == starts[len(letters)]-starts[0] {
		steps = steps[:last] // nothing is behind it
	}
	return steps
}

// described returns the end of the function that describes pc, or 0.
func described(t *cfi.Table, pc uint64) uint64 {
	i := sort.Search(len(t.Functions), func(i int) bool { return t.Functions[i].End > pc })
	if i < len(t.Functions) && t.Functions[i].Begin <= pc {
		return t.Functions[i].End
	}
	return 0
}

// next returns where the first function behind pc begins.
func next(t *cfi.Table, pc uint64) uint64 {
	i := sort.Search(len(t.Functions), func(i int) bool { return t.Functions[i].Begin > pc })
	if i < len(t.Functions) {
		return t.Functions[i].Begin
	}
	return ^uint64(0)
}
