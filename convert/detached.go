package convert

import (
	"cmp"
	"debug/elf"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/sframe"
)

// checkDetachable returns an error if a file cannot have a detached .sframe, or does not need one.
func (s *single) checkDetachable() error {
	id, _, err := s.f.BuildID()
	switch t := elf.Type(s.f.Type); {
	case err != nil:
		return err
	case t != elf.ET_EXEC && t != elf.ET_DYN:
		return errNotLinked
	case len(id) < s.buildID:
		return errNoBuildID
	case hasSFrame(s.f) && !s.opt.Force:
		return ErrHasSFrame
	}
	return nil
}

// attach adds the detached .sframe.
func (s *single) attach(open Opener) error {
	if err := s.checkDetachable(); err != nil {
		return err
	}
	section, from, err := s.readDetached(open)
	if err != nil {
		return err
	}
	layout, err := elfwrite.Plan(s.f, uint64(len(section)), elfwrite.Options{Force: s.opt.Force})
	if err != nil {
		return err
	}
	if err := s.checkAppended(layout); err != nil {
		return err
	}
	if err := sframe.Move(section, from, layout.Addr); err != nil {
		return err
	}
	dst, err := s.output(layout, section)
	if err != nil {
		return err
	}
	f, d, err := s.result(dst, layout, section)
	if err != nil {
		return err
	}
	return cmp.Or(s.checkAttached(f, d), f.ReadError())
}

// checkAttached compares the attached section with the CFI.
func (s *single) checkAttached(f *elffile.File, d *sframe.Section) (err error) {
	if s.debug, err = s.opt.Debug.open(f); err != nil {
		return err
	}
	if s.table, err = LoadCFI(s.ctx, f, s.opt.loading(s.debug)); err != nil {
		return err
	}
	c, err := Check(f, d, s.table)
	if err == nil && len(c.Mismatches) > 0 {
		m := &c.Mismatches[0]
		err = fmt.Errorf("nothing was written: the detached .sframe does not match this file: %d mismatches with the "+
			"CFI, the first at %#x-%#x: %s", len(c.Mismatches), m.Begin, m.End, m.What)
		if !s.opt.Infer && c.Undescribed {
			err = mayInfer(f, err)
		}
	}
	if err != nil || s.job.Report == nil {
		return err
	}
	return s.job.Report(&Details{Comparison: c, InputSize: uint64(s.job.Size), File: f, Debug: s.debug, Table: s.table})
}

// readDetached returns the detached .sframe and its address.
func (s *single) readDetached(open Opener) ([]byte, uint64, error) {
	d, err := open.open(s.f)
	if err != nil {
		return nil, 0, err
	}
	if d == nil {
		return nil, 0, errDetached
	}
	defer d.Close()
	f := d.File()
	if err := Belongs(d, s.f); err != nil {
		return nil, 0, err
	}
	at, err := elfwrite.FindSFrame(f)
	if err == nil && at.Section == 0 {
		err = sframe.ErrNone
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", d.Path, err)
	}
	b, err := f.ReadSection(&f.Sections[at.Section])
	return b, f.Sections[at.Section].Addr, cmp.Or(d.ReadError(), err)
}

// Belongs returns an error if the file with a detached .sframe is for a program other than f.
func Belongs(d *Companion, f *elffile.File) error {
	if err := elfwrite.Belongs(d.File(), f); err != nil {
		return cmp.Or(d.ReadError(), f.ReadError(), fmt.Errorf("detached .sframe %s: %w", d.Path, err))
	}
	return nil
}
