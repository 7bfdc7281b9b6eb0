package walker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"cfi2sframe/sframe"
)

// The walker's answers: enum sfw_how.
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

// A walker is a program of c/query.c that runs.
type walker struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	in     *bufio.Writer
	out    *bufio.Reader
	err    error // of reading
	stderr strings.Builder
}

// start runs the command, which may be an emulator's.
func start(command ...string) (*walker, error) {
	w := &walker{cmd: exec.Command(command[0], command[1:]...)}
	w.cmd.Stderr = &w.stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.stdin, w.out = bufio.NewWriterSize(in, 1<<16), in, bufio.NewReaderSize(out, 1<<16)
	return w, w.cmd.Start()
}

// close ends the program, and returns an error if it has failed.
func (w *walker) close() error {
	_ = w.stdin.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w\n%s", w.cmd.Args, err, w.stderr.String())
	}
	return nil
}

// A row is what a lookup finds.
type row struct {
	how int
	sframe.FRE
	keyB, signal bool
}

// lookup returns what package sframe finds.
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

// compare asks the walker for rows and steps at all pcs, and returns an error if package sframe finds another row, or
// the row leads elsewhere. After an error the walker must not be used again.
func (w *walker) compare(s *section, pcs []uint64) error {
	sec, wrong := sframe.Decode(s.data, s.addr)
	if wrong == nil && (sec.FixedRA != 0) != (sec.ABI.FixedRA() != 0) {
		wrong = errors.New("a fixed offset of RA where the ABI has none, or none where it has one")
	}
	want := sfwOK
	if wrong != nil {
		want = sfwBadSection
	}
	asked := make(chan struct{})
	go w.ask(s, pcs, asked)
	opened, checked := int(w.number(1)), int(w.number(1))
	if w.err == nil && checked != want {
		return fmt.Errorf("%s: the walker says %d of the section, want %d (%v)", s.name, checked, want, wrong)
	}
	for _, pc := range pcs {
		got := w.row()
		if wrong == nil && w.err == nil {
			found := got
			if found.how == sfwOK { // the walker adds fixed rules when it takes the step
				found.Row = sec.Complete(got.Row)
			}
			if want := lookup(sec, pc); found != want {
				return fmt.Errorf("%s: pc %#x: the walker finds how %d, %v; want how %d, %v",
					s.name, pc, found.how, found, want.how, want)
			}
		}
		if opened != sfwOK {
			continue
		}
		for _, topmost := range []bool{true, false} {
			taken := w.step()
			abi := sframe.ABI(s.data[4])
			want := evaluate(abi, &got, pc, topmost)
			if w.err == nil && taken != want && !trampoline(&got, abi, taken.pc) {
				return fmt.Errorf("%s: pc %#x: by %+v, topmost %v, the walker steps to %+v, want %+v",
					s.name, pc, got, topmost, taken, want)
			}
		}
	}
	if w.err != nil {
		return fmt.Errorf("%s: %w\n%s", s.name, w.err, w.stderr.String())
	}
	<-asked
	return nil
}

// ask sends a question, while the answer is read. The answer shows errors.
func (w *walker) ask(s *section, pcs []uint64, done chan<- struct{}) {
	defer close(done)
	le := binary.LittleEndian
	for _, v := range []uint64{uint64(len(s.data)), s.addr, uint64(len(pcs))} {
		_, _ = w.in.Write(le.AppendUint64(nil, v))
	}
	_, _ = w.in.Write(s.data)
	for _, pc := range pcs {
		_, _ = w.in.Write(le.AppendUint64(nil, pc))
	}
	_ = w.in.Flush()
}

// number reads a number of the given size in bytes.
func (w *walker) number(size int) uint64 {
	var b [8]byte
	if w.err == nil {
		_, w.err = io.ReadFull(w.out, b[:size])
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (w *walker) flag() bool { return w.number(1) == 1 }

func (w *walker) rule() sframe.Rule {
	return sframe.Rule{
		Offset: int32(w.number(4)), Reg: uint16(w.number(2)), Base: sframe.Base(w.number(1)), Deref: w.flag(),
	}
}

func (w *walker) row() row {
	r := row{how: int(w.number(1))}
	if r.how == sfwOK {
		r.Outermost, r.Signed, r.keyB, r.signal = w.flag(), w.flag(), w.flag(), w.flag()
		r.Start = uint32(w.number(4))
		r.CFA, r.RA, r.FP = w.rule(), w.rule(), w.rule()
	}
	return r
}

func (w *walker) step() step {
	return step{
		how: int(w.number(1)), interrupted: w.flag(), valid: uint32(w.number(4)),
		pc: w.number(8), floor: w.number(8), sp: w.number(8), fp: w.number(8),
	}
}
