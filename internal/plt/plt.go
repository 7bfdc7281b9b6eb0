// Package plt finds PLT stubs without CFI and derives their frames from their instructions.
//
// GNU ld emits CFI for its PLT on amd64 and s390x. lld and mold do not, and on aarch64 no linker does. A stub is one of
// a few known instruction sequences, and all its instructions must match. If a section contains any other instruction,
// none of its stubs is described: that code might fall through or jump into a stub with a different stack depth.
//
// Supported: .plt, .plt.got, .plt.sec and .iplt of GNU ld, lld and mold, with and without IBT, BTI and PAC; the stubs
// of lld's -z retpolineplt; and TLS descriptor stubs on aarch64. Stubs with CFI are handled by package translate.
package plt

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
)

// A Step describes the frame, starting at an instruction of a stub.
type Step struct {
	Offset uint32 // in bytes from the start of the stub
	CFA    int32  // CFA - SP in bytes
	RA     int32  // offset of the saved return address from the CFA in bytes; 0: where the call left it
}

// A Stub is a PLT stub.
type Stub struct {
	Begin, End uint64 // addresses; End is exclusive
	Steps      []Step // the first is at offset 0
}

// stubForms describes the stubs of a machine.
type stubForms struct {
	align  uint64 // alignment of stubs in bytes
	tokens []token
	stubs  []form
	// leaving lists the letters of unconditional jumps; padding lists those of no-ops and traps.
	leaving, padding string
	thunk            string // letters of the thunk that stubs may call, or ""
}

// A token describes an instruction.
type token struct {
	letter byte
	code   pattern
	push   int32 // decrement of SP in bytes
	ra     int32 // offset from the CFA at which it saves the return address, or 0
	jumps  bool  // direct jump; its last 4 bytes are a little-endian displacement from its end
	calls  bool  // direct call to a stub's thunk, which does not return; encoded like a jump
}

// A form describes a kind of stub.
type form struct {
	seq    *regexp.Regexp // matches the letters of a stub's tokens
	pushed int32          // bytes already pushed at its start, in addition to a return address
	rows   int            // number of leading tokens with rows; 0: all
}

func stub(seq string) form { return form{seq: regexp.MustCompile("^(?:" + seq + ")")} }

// lazy returns the form of a stub to which other stubs jump after pushing data.
func lazy(seq string, pushed int32) form {
	f := stub(seq)
	f.pushed = pushed
	return f
}

// thunk returns the form of code that stubs call in order to jump. The first token of a thunk overwrites the return
// address, so only this token has rows.
func thunk(seq string) form {
	f := stub(seq)
	f.rows = 1
	return f
}

// A pattern matches machine code. Bits outside the mask may have any value.
type pattern struct{ value, mask []byte }

// code parses a pattern in hexadecimal; ? matches any digit.
func code(s string) pattern {
	s = strings.ReplaceAll(s, " ", "")
	value, err := hex.DecodeString(strings.ReplaceAll(s, "?", "0"))
	if err != nil {
		panic(err) // patterns are constants
	}
	mask := make([]byte, len(value))
	for i := range s {
		if s[i] != '?' {
			mask[i/2] |= 0xf << (4 * (1 - i%2))
		}
	}
	return pattern{value, mask}
}

// word returns a pattern for one 32-bit little-endian instruction.
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

// machines maps the machines to functions that return their stub forms. Forms are built on demand because a run needs
// those of only one machine.
var machines = arch.PerMachine(amd64, aarch64, s390x)

var sectionNames = map[string]bool{".plt": true, ".plt.got": true, ".plt.sec": true, ".iplt": true}

// IsSection reports whether sections with the given name contain PLT stubs.
func IsSection(name string) bool { return sectionNames[name] }

// maxSection bounds the total size of PLT sections in bytes. In the largest programs, PLT sections total a few hundred
// KiB.
const maxSection = 2 << 20

// maxSections bounds the number of PLT sections. Linkers emit at most four PLT sections.
const maxSections = 64

// costStub is the budget cost per byte of a PLT without CFI.
const costStub = 250

// Find returns the stubs of f that the table does not cover, sorted by address.
func Find(f *elffile.File, t *cfi.Table) ([]Stub, error) {
	known := machines[elf.Machine(f.Machine)]
	if known == nil {
		return nil, nil
	}
	all := sections(f)
	if !slices.ContainsFunc(all, func(s *elffile.Section) bool { return !described(t, s) }) {
		return nil, nil
	}
	w := walker{stubForms: known(), entry: arch.Of(elf.Machine(f.Machine)).EntryCFA}
	for _, s := range all {
		if err := f.Budget().Spend(costStub, s.Size); err != nil {
			return nil, fmt.Errorf("section %s at file offset %#x: %w", s.Name, s.Off, err)
		}
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		w.section(b, s.Addr, t)
	}
	return w.certainStubs(), nil
}

// sections returns the PLT sections of f, which do not overlap.
func sections(f *elffile.File) (all []*elffile.Section) {
	room := uint64(maxSection)
	for _, s := range elffile.Each(f.Sections) {
		if !sectionNames[s.Name] || !s.Alloc() || !s.HasBytes() || s.Flags&uint64(elf.SHF_EXECINSTR) == 0 ||
			s.Size > room || len(all) == maxSections {
			continue
		}
		if off, ok := f.FileOffset(s.Addr, s.Size); !ok || off != s.Off {
			continue // a segment maps other file contents to this address
		}
		overlaps := func(t *elffile.Section) bool { return s.Addr < t.Addr+t.Size && t.Addr < s.Addr+s.Size }
		if !slices.ContainsFunc(all, overlaps) {
			all = append(all, s)
			room -= s.Size
		}
	}
	return all
}

// described reports whether the functions of the table cover the whole section.
func described(t *cfi.Table, s *elffile.Section) bool {
	for pc := s.Addr; pc < s.Addr+s.Size; {
		fn := t.Find(pc)
		if fn == nil {
			return false
		}
		pc = fn.End
	}
	return true
}

// A walker finds the stubs in sections.
type walker struct {
	*stubForms
	entry int32 // CFA - SP at the first instruction
	found []candidate
	jumps []jump
}

// A candidate is code that looks like a stub.
type candidate struct {
	Stub
	lazy  bool // PLT header, to which entries jump
	entry bool // an entry jumps to its start
	wrong bool // the CFA at a jump into it differs
}

// A jump records a direct jump in a PLT section.
type jump struct {
	to  uint64
	cfa int32 // CFA - SP at the target
}

// section finds the stubs in b, the contents of a section at addr. The section may contain stubs, padding, and code
// that has CFI and consists of the same instructions as stubs. After any other instruction, neither the stack depth nor
// the start of the next instruction is known, so the section is rejected.
func (w *walker) section(b []byte, addr uint64, t *cfi.Table) {
	found, jumps := len(w.found), len(w.jumps)
	i := sort.Search(t.Len(), func(i int) bool { return t.At(i).End > addr })
	for pc, last := addr, addr+uint64(len(b)); pc < last; {
		end, function := last, false
		if i < t.Len() {
			fn := t.At(i)
			if function = fn.Begin <= pc; function {
				end = min(end, fn.End)
				i++
			} else {
				end = min(end, fn.Begin)
			}
		}
		code := b[pc-addr : end-addr]
		if function && !w.function(code, pc) || !function && !w.stubs(code, pc, pc > addr) {
			w.found, w.jumps = w.found[:found], w.jumps[:jumps]
			return
		}
		pc = end
	}
}

// stubs finds the stubs in b, which starts at pc. It reports whether b contains only stubs and padding. Padding is
// allowed after stubs, and at the start if jumped is set.
func (w *walker) stubs(b []byte, pc uint64, jumped bool) bool {
	letters, starts := w.tokenize(b)
	for i := 0; i < len(letters); {
		begin := pc + uint64(starts[i])
		n, f := w.match(letters[i:])
		switch {
		case n != 0 && begin%w.align == 0:
			if !w.callsThunk(b, letters[i:i+n], starts[i:]) {
				return false
			}
			described := n
			if f.rows > 0 {
				described = f.rows
			}
			s := Stub{Begin: begin, End: pc + uint64(starts[i+described]),
				Steps: w.steps(f, letters[i:i+described], starts[i:])}
			w.found = append(w.found, candidate{Stub: s, lazy: f.pushed != 0})
			w.direct(b, pc, letters[i:i+n], starts[i:])
			i += n
		case w.isPadding(letters[i]) && (i > 0 || jumped):
			i++
		default:
			return false
		}
	}
	return true
}

// callsThunk reports whether every call in a stub in b targets a thunk in b. A call to a thunk does not return, so the
// code after it is never executed.
func (w *walker) callsThunk(b []byte, letters []byte, starts []int) bool {
	for i, letter := range letters {
		if !w.token(letter).calls {
			continue
		}
		end := starts[i+1]
		to := int64(end) + int64(int32(binary.LittleEndian.Uint32(b[end-4:])))
		if to < 0 || to >= int64(len(b)) {
			return false
		}
		for _, next := range []byte(w.thunk) {
			t := w.token(next)
			if !t.code.match(b[to:]) {
				return false
			}
			to += int64(len(t.code.value))
		}
	}
	return true
}

// function scans the code in b at pc, which has CFI. It reports whether all instructions are known and the last
// instruction before padding is a jump.
func (w *walker) function(b []byte, pc uint64) bool {
	letters, starts := w.tokenize(b)
	w.direct(b, pc, letters, starts)
	n := len(letters)
	for n > 0 && w.isPadding(letters[n-1]) {
		n--
	}
	if slices.ContainsFunc(letters, func(letter byte) bool { return w.token(letter).calls }) {
		return false // the call may return
	}
	return n > 0 && w.isJump(letters[n-1]) // not letter 0, which would be the last
}

// direct records the direct jumps among the tokens of b, which starts at pc. Lazy stubs do not jump before a call.
func (w *walker) direct(b []byte, pc uint64, letters []byte, starts []int) {
	cfa, called := w.entry, false // called: after a call, so not executed
	for i, letter := range letters {
		t := w.token(letter)
		if end := starts[i+1]; (t.jumps || t.calls) && !called {
			distance := int32(binary.LittleEndian.Uint32(b[end-4:]))
			to := jump{pc + uint64(end) + uint64(int64(distance)), cfa}
			if t.calls {
				to.cfa = w.entry
			}
			w.jumps = append(w.jumps, to)
		}
		called = called || t.calls
		if w.isJump(letter) {
			cfa, called = w.entry, false // the next instruction is the target of a call
		} else {
			cfa += t.push
		}
	}
}

// cfa returns CFA - SP at an offset from the start of the stub.
func (s *Stub) cfa(offset uint32) int32 {
	i := sort.Search(len(s.Steps), func(i int) bool { return s.Steps[i].Offset > offset })
	return s.Steps[i-1].CFA
}

// certainStubs returns the stubs whose frames are certain: each jump into a stub has the same CFA as its target, and a
// lazy PLT header is the target of an entry's jump.
func (w *walker) certainStubs() []Stub {
	slices.SortFunc(w.found, func(a, b candidate) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, j := range w.jumps {
		i := sort.Search(len(w.found), func(i int) bool { return w.found[i].End > j.to })
		if i < len(w.found) && w.found[i].Begin <= j.to {
			s := &w.found[i]
			s.entry = s.entry || j.to == s.Begin
			s.wrong = s.wrong || s.cfa(uint32(j.to-s.Begin)) != j.cfa
		}
	}
	var out []Stub
	for i := range w.found {
		if s := &w.found[i]; !s.wrong && (s.entry || !s.lazy) {
			out = append(out, s.Stub)
		}
	}
	return out
}

// tokenize splits code into tokens. It returns the letters of the tokens, and their offsets followed by the end of the
// last token. Letter 0 is unknown code and ends the list.
func (m *stubForms) tokenize(b []byte) (letters []byte, starts []int) {
	for off := 0; off < len(b); {
		starts = append(starts, off)
		i := slices.IndexFunc(m.tokens, func(t token) bool { return t.code.match(b[off:]) })
		if i < 0 {
			return append(letters, 0), append(starts, len(b))
		}
		letters = append(letters, m.tokens[i].letter)
		off += len(m.tokens[i].code.value)
	}
	return letters, append(starts, len(b))
}

// isJump reports whether the letter's instruction is an unconditional jump.
func (m *stubForms) isJump(letter byte) bool { return strings.IndexByte(m.leaving, letter) >= 0 }

// isPadding reports whether the letter's instruction is padding.
func (m *stubForms) isPadding(letter byte) bool { return strings.IndexByte(m.padding, letter) >= 0 }

// match returns the number of tokens of the stub at the start of letters, and its form.
func (m *stubForms) match(letters []byte) (int, *form) {
	for i := range m.stubs {
		if loc := m.stubs[i].seq.FindIndex(letters); loc != nil {
			return loc[1], &m.stubs[i]
		}
	}
	return 0, nil
}

// token returns a token with the given letter. All tokens with the same letter have the same effect.
func (m *stubForms) token(letter byte) token {
	if i := slices.IndexFunc(m.tokens, func(t token) bool { return t.letter == letter }); i >= 0 {
		return m.tokens[i]
	}
	return token{}
}

// steps tracks SP through a stub, whose last token pushes nothing.
func (w *walker) steps(f *form, letters []byte, starts []int) []Step {
	now := Step{CFA: w.entry + f.pushed}
	steps := []Step{now}
	for i, letter := range letters {
		t := w.token(letter)
		if t.push == 0 {
			continue
		}
		now.CFA += t.push
		now.RA = cmp.Or(t.ra, now.RA)
		now.Offset = uint32(starts[i+1] - starts[0])
		steps = append(steps, now)
	}
	return steps
}
