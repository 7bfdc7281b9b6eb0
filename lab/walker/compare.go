package walker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"

	"cfi2sframe/sframe"
)

// Results of the walker: enum sfw_how.
const (
	sfwOK = iota
	sfwSFrame
	sfwSignal
	sfwFramePointer
	sfwOutermost
	sfwZero
	sfwNoSection
	sfwNoRow
	sfwBadSection
	sfwBadMemory
	sfwNoRegister
	sfwNoProgress
)

// A row is the result of a lookup.
type row struct {
	how int
	sframe.FRE
	keyB, signal bool
}

// lookup looks up a pc with package sframe.
func lookup(s *sframe.Section, pc uint64) row {
	m, ok, err := s.Lookup(pc)
	switch {
	case err != nil:
		return row{how: sfwBadSection}
	case !ok:
		return row{how: sfwNoRow}
	}
	return row{sfwOK, sframe.FRE{Start: m.Start, Row: m.Row}, m.FDE.KeyB, m.FDE.Signal}
}

// compare runs c/query.c on all sections, and returns an error if its rows or steps differ from those of package
// sframe. The command may include an emulator.
func compare(list []*section, command ...string) error {
	const most = 100 // sections per run: their answers are kept in memory
	rnd := rand.New(rand.NewPCG(1, 2))
	for some := range slices.Chunk(list, most) {
		var questions []byte
		var asked [][]uint64
		for _, s := range some {
			list := pcs(s, rnd)
			questions = s.appendQuestion(questions, list)
			asked = append(asked, list)
		}
		cmd := exec.Command(command[0], command[1:]...)
		var stderr strings.Builder
		cmd.Stdin, cmd.Stderr = bytes.NewReader(questions), &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, stderr.String())
		}
		a := answers(out)
		for i, s := range some {
			if err := a.compare(s, asked[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// appendQuestion appends the input of c/query.c for a section.
func (s *section) appendQuestion(b []byte, pcs []uint64) []byte {
	le := binary.LittleEndian
	for _, v := range []uint64{uint64(len(s.data)), s.addr, uint64(len(pcs))} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, s.data...)
	for _, pc := range pcs {
		b = le.AppendUint64(b, pc)
	}
	return b
}

// answers is the output of c/query.c. If the program succeeded, the output is complete.
type answers []byte

// compare compares the next answers, those for a section and its pcs, with the results of package sframe.
func (a *answers) compare(s *section, pcs []uint64) error {
	sec, wrong := sframe.Decode(s.data, s.addr)
	if wrong == nil && (sec.FixedRA != 0) != (sec.ABI.FixedRA() != 0) {
		wrong = errors.New("a fixed RA offset where the ABI has none, or none where it has one")
	}
	want := sfwOK
	if wrong != nil {
		want = sfwBadSection
	}
	opened, checked := int(a.number(1)), int(a.number(1))
	if checked != want {
		return fmt.Errorf("the walker's checks of the section return %d; want %d (%v)", checked, want, wrong)
	}
	for _, pc := range pcs {
		got := a.row()
		if wrong == nil {
			found := got
			if found.how == sfwOK { // the walker applies fixed rules when it steps
				found.Row = sec.Complete(got.Row)
			}
			if want := lookup(sec, pc); found != want {
				return fmt.Errorf("pc %#x: the walker returns status %d, %v; want status %d, %v",
					pc, found.how, found, want.how, want)
			}
		}
		if opened != sfwOK {
			continue
		}
		for _, topmost := range []bool{true, false} {
			taken := a.step()
			abi := sframe.ABI(s.data[4])
			want := evaluate(abi, &got, pc, topmost)
			at := pc // as in evaluate
			if !topmost {
				at++
			}
			if taken != want && !trampoline(&got, abi, at) {
				return fmt.Errorf("pc %#x: with row %+v, topmost %v, the walker steps to %+v; want %+v",
					pc, got, topmost, taken, want)
			}
		}
	}
	return nil
}

// number reads an integer of the given size in bytes.
func (a *answers) number(size int) uint64 {
	var b [8]byte
	copy(b[:], (*a)[:size])
	*a = (*a)[size:]
	return binary.LittleEndian.Uint64(b[:])
}

func (a *answers) flag() bool { return a.number(1) == 1 }

func (a *answers) rule() sframe.Rule {
	return sframe.Rule{
		Offset: int32(a.number(4)), Reg: uint16(a.number(2)), Base: sframe.Base(a.number(1)), Deref: a.flag(),
	}
}

func (a *answers) row() row {
	r := row{how: int(a.number(1))}
	if r.how == sfwOK {
		r.Outermost, r.Signed, r.keyB, r.signal = a.flag(), a.flag(), a.flag(), a.flag()
		r.Start = uint32(a.number(4))
		r.CFA, r.RA, r.FP = a.rule(), a.rule(), a.rule()
	}
	return r
}

func (a *answers) step() step {
	return step{
		how: int(a.number(1)), interrupted: a.flag(), valid: uint32(a.number(4)),
		pc: a.number(8), floor: a.number(8), sp: a.number(8), fp: a.number(8),
	}
}
