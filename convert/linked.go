package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/emit"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/panics"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A linked adds an .sframe to a linked file, or writes it to a separate file.
type linked struct {
	*single
	references references
	plan       func(size uint64) (*elfwrite.Layout, error)
	first      *elfwrite.Layout // layout as if the new section were empty
	dst        *os.File         // output created by begin, or nil
	copies     panics.Group     // copying started by begin
	failed     error            // error from copying
}

func (l *linked) add() error {
	if l.opt.Update && (l.opt.Reserved != "" || hasSFrame(l.f)) {
		if err := l.checkCurrent(); err != nil {
			return err
		}
	}
	if err := l.layOut(); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	defer l.copies.Wait()
	t, err := l.fit()
	if err != nil {
		return err
	}
	if err := l.checkAppended(t.layout); err != nil {
		return err
	}
	l.note(t)
	if t.content.NumFDEs() == 0 {
		if hasSFrame(l.f) {
			return fmt.Errorf("%s; 'cfi2sframe remove' removes the old .sframe", errNoRows)
		}
		return errNoRows
	}
	dst, err := l.output(t)
	if err != nil {
		return err
	}
	return l.verify(dst, t)
}

// layOut finds the place of the section.
func (l *linked) layOut() (err error) {
	version, _ := l.opt.Version.Layout()
	opt := elfwrite.Options{Force: l.opt.mayReplace(), Near: version.StartSize == 4, Refers: l.gaps.Refer}
	switch {
	case l.detach:
		l.plan = func(size uint64) (*elfwrite.Layout, error) { return elfwrite.PlanDetached(l.f, size, opt) }
	case l.opt.Reserved != "":
		var r elffile.Span
		r, err = intoRange(l.f, l.opt.Reserved)
		l.plan = func(size uint64) (*elfwrite.Layout, error) {
			return elfwrite.PlanInto(l.f, r.Begin, r.End, size, opt)
		}
	default:
		var p *elfwrite.Program
		p, err = elfwrite.NewProgram(l.f, opt)
		l.plan, l.references = p.Plan, p.References
	}
	if err == nil {
		l.first, err = l.plan(0)
	}
	return err
}

// fit translates the CFI and computes the layout of the new file. How much code 32-bit start addresses can reach
// depends on the section's address. It is usually the planned address, but a section that does not fit in the space of
// the old one moves. If start addresses are relative to their own fields, their common range shrinks with each FDE.
func (l *linked) fit() (*translation, error) {
	addr := l.first.Addr
	reach := l.reach(addr, 1)
	for first := true; ; first = false {
		t, err := l.translate(reach, l.references)
		if err != nil {
			return nil, err
		}
		if t.layout, err = l.plan(t.content.Size()); err != nil {
			return nil, err
		}
		t.section, err = t.content.Encode(t.layout.Addr)
		var far *emit.RangeError
		if err != nil && !errors.As(err, &far) {
			return nil, err
		}
		gaps := t.Sums[translate.TooFar].Ranges > 0
		if err == nil && (!gaps || t.layout.Addr == addr || !first) {
			if gaps && t.content.NumFDEs() == 0 {
				err = fmt.Errorf("%w at %#x; use format 3", errTooFar, t.layout.Addr)
				if hasSFrame(l.f) {
					err = fmt.Errorf("%w, or remove the old section first", err)
				}
				return nil, err
			}
			return t, nil
		}
		next := l.reach(t.layout.Addr, t.content.NumFDEs())
		if !first {
			next = translate.Reach{First: max(next.First, reach.First), Last: min(next.Last, reach.Last)}
			if next == reach {
				return nil, err
			}
		}
		addr, reach = t.layout.Addr, next
	}
}

// reach returns the range of code that the start addresses of a section at addr can express.
func (l *linked) reach(addr uint64, fdes int) translate.Reach {
	return translate.ReachOf(l.opt.Version, addr, l.opt.PCRel, fdes)
}

// begin starts the output if several workers share the work: it copies the bytes before .sframe while the file is
// analyzed. Without this overlap, converting libLLVM-14.so.1 takes 1.2 times as long (2026-11-24).
func (l *linked) begin() (err error) {
	if l.create == nil || l.detach || l.opt.workers(l.table, l.f.Size) == 1 {
		return nil
	}
	if l.dst, err = l.create(); err == nil {
		l.copies.Go(func() { l.failed = l.first.Begin(l.ctx, l.dst, l.src) })
	}
	return err
}

// output writes the new file. It completes the output that begin started, if any.
func (l *linked) output(t *translation) (*os.File, error) {
	if l.dst == nil {
		return l.single.output(t.layout, t.section)
	}
	l.copies.Wait()
	err := cmp.Or(l.ctx.Err(), l.failed)
	if err == nil {
		err = t.layout.Write(l.ctx, l.dst, l.src, t.section, l.first)
	}
	return l.dst, outfile.Plain(err)
}

// checkCurrent returns errCurrent and records the facts if the old .sframe is up to date: readers find
// it, and its bytes are those that would be written. Otherwise it returns nil.
func (l *linked) checkCurrent() error {
	b, addr, err := l.opt.sectionBytes(l.f)
	if err != nil {
		return nil
	}
	old, err := sframe.Decode(b, addr)
	if err != nil {
		return nil
	}
	if why, err := l.opt.Linux.Refusal(l.f, old); why != "" || err != nil {
		return err
	}
	t, err := l.translate(l.reach(addr, old.Len()), l.references)
	if err != nil {
		return err
	}
	section, err := t.content.Encode(addr)
	if err != nil || !bytes.HasPrefix(b, section) || anyByte(b[len(section):]) ||
		len(b) > len(section) && l.opt.Reserved == "" ||
		l.compare(l.f, old, t) != nil {
		return nil
	}
	t.section, t.layout = section, &elfwrite.Layout{Addr: addr}
	l.note(t)
	l.facts.Verified = true
	return errCurrent
}
