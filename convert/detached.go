package convert

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/sframe"
)

// separable returns an error if a file cannot have, or does not need, a detached .sframe.
func (s *single) separable() error {
	id, _, err := s.f.BuildID()
	switch t := elf.Type(s.f.Type); {
	case err != nil:
		return err
	case t != elf.ET_EXEC && t != elf.ET_DYN:
		return errNotLinked
	case s.opt.BuildID && len(id) < debugfile.MinBuildID:
		return errNoBuildID
	case hasSFrame(s.f) && !s.opt.Force:
		return errExists
	}
	return nil
}

// attach adds the detached .sframe.
func (s *single) attach() error {
	if err := s.separable(); err != nil {
		return err
	}
	section, from, err := s.detached()
	if err != nil {
		return err
	}
	layout, err := elfwrite.Plan(s.f, uint64(len(section)), elfwrite.Options{Force: s.opt.Force})
	if err != nil {
		return err
	}
	if err := sframe.Move(section, from, layout.Addr); err != nil {
		return err
	}
	f, d := s.f, (*sframe.Section)(nil)
	if s.opt.DryRun {
		d, err = sframe.Decode(section, layout.Addr)
	} else {
		dst, failed := s.output(layout, section)
		if failed != nil {
			return failed
		}
		if f, err = reopen(dst); err == nil {
			d, err = readResult(f, layout.Size)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", unsound, err)
	}
	c, err := compared(f, d, s.opt)
	if err == nil && len(c.Mismatches) > 0 {
		m := &c.Mismatches[0]
		err = fmt.Errorf("nothing was written: the detached .sframe is not that of this file: %d mismatches with the "+
			"CFI, the first at %#x-%#x: %s", len(c.Mismatches), m.Begin, m.End, m.What)
	}
	s.res.Attached = c
	return err
}

// detached returns the detached .sframe and its address.
func (s *single) detached() ([]byte, uint64, error) {
	d, err := s.opt.openSFrame(s.f)
	if err != nil {
		return nil, 0, err
	}
	if d == nil {
		return nil, 0, errDetached
	}
	defer d.Close()
	f := d.File()
	at, err := elfwrite.FindSFrame(f)
	if err == nil && at.Section == 0 {
		err = sframe.ErrNone
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", d.Path(), err)
	}
	b, err := f.ReadSection(&f.Sections[at.Section])
	return b, f.Sections[at.Section].Addr, cmp.Or(d.ReadError(), err)
}

// Section is ReadSection, or decodes the detached .sframe that o.SFrame has for the file, or what is in reserved bytes:
// those of o.Reserved, or the kernel's if no header leads to a section.
func (o *Options) Section(f *elffile.File) (*sframe.Section, error) {
	if o.SFrame != "" {
		d, err := o.openSFrame(f)
		if err != nil {
			return nil, err
		}
		if d != nil {
			defer d.Close()
			s, err := ReadSection(d.File())
			return s, cmp.Or(d.ReadError(), err)
		}
		s, err := o.ownSection(f)
		if errors.Is(err, sframe.ErrNone) {
			id, _, idErr := f.BuildID()
			err = cmp.Or(idErr, error(&StoreError{o.SFrame, id}))
		}
		return s, err
	}
	return o.ownSection(f)
}

// A StoreError says that neither a directory of detached sections nor the file has an .sframe.
type StoreError struct {
	Directory string
	BuildID   []byte
}

func (e *StoreError) Error() string {
	if len(e.BuildID) < debugfile.MinBuildID {
		return fmt.Sprintf("no .sframe, and no build-id by which the directory %s has one", e.Directory)
	}
	return fmt.Sprintf("no .sframe, and the directory %s has none for the build-id %x", e.Directory, e.BuildID)
}

// Is makes errors.Is find sframe.ErrNone.
func (e *StoreError) Is(target error) bool { return target == sframe.ErrNone }

// ownSection is Section without detached sections.
func (o *Options) ownSection(f *elffile.File) (*sframe.Section, error) {
	if reserved := o.reserved(f); reserved != "" {
		return readInto(f, reserved)
	}
	return ReadSection(f)
}

// openSFrame opens the detached .sframe that o.SFrame has for the file, or returns nil.
func (o *Options) openSFrame(f *elffile.File) (*debugfile.File, error) {
	d, err := debugfile.OpenSFrame(o.SFrame, f)
	if d == nil || err != nil {
		return nil, err
	}
	if err := elfwrite.Belongs(d.File(), f); err != nil {
		err = cmp.Or(d.ReadError(), f.ReadError(), fmt.Errorf("detached .sframe %s: %w", d.Path(), err))
		d.Close()
		return nil, err
	}
	return d, nil
}
