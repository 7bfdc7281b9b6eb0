package convert

import (
	"cmp"
	"debug/elf"
	"errors"
	"io"

	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// An object adds an .sframe to a relocatable object.
type object struct{ *single }

func (o *object) add() error {
	t, err := o.translate(translate.Reach{}, o.references) // linkers place the section
	if err != nil {
		return err
	}
	if err := o.layOut(t); err != nil {
		return err
	}
	o.note(t)
	if o.opt.Update && hasSFrame(o.f) {
		if same, err := o.unchanged(t); same || err != nil {
			o.facts.Verified = same && err == nil
			return cmp.Or(err, errCurrent)
		}
	}
	if t.content.NumFDEs() == 0 && !hasSFrame(o.f) {
		return errNoRows // otherwise the old section is removed
	}
	dst, err := o.output(t.layout, t.section)
	if dst == nil && err == nil {
		t, err = o.assigned(t)
	}
	if err != nil {
		return err
	}
	return o.verify(dst, t)
}

// layOut computes the layout of the new file and encodes the section. If there are no rows, it adds no section, because
// ld rejects empty sections.
func (o *object) layOut(t *translation) (err error) {
	if l, _ := o.opt.Version.Layout(); !l.Objects {
		return errors.New("relocatable objects can be converted to format 2 or 3 only")
	}
	if t.content.NumFDEs() == 0 {
		if at, err := elfwrite.FindSFrame(o.f); err != nil {
			return err
		} else if at.Section > 0 && !o.opt.mayReplace() {
			return elfwrite.ErrExists
		}
		if t.layout, err = elfwrite.PlanRemoval(o.f); errors.Is(err, elfwrite.ErrNone) {
			t.layout, err = elfwrite.Unchanged(o.f), nil
		}
		return err
	}
	section, starts, err := t.content.EncodeObject()
	if err != nil {
		return err
	}
	into := elfwrite.Object{Type: o.objectType(), StartSize: t.content.StartSize(), Module: o.opt.Linux == LinuxModule,
		Starts: starts}
	t.section = section
	t.layout, err = elfwrite.PlanObject(o.f, t.content.Size(), into, elfwrite.Options{Force: o.opt.mayReplace()})
	return err
}

// objectType returns the section type of .sframe in an object.
func (o *object) objectType() elf.SectionType {
	if l, _ := o.opt.Version.Layout(); l.PCRel || o.opt.PCRel {
		return elf.SectionType(sframe.SHTGNUSFrame) // binutils 2.45 and later
	}
	return elf.SHT_PROGBITS // binutils 2.44
}

// assigned returns the translation with a section for an assigned address. All of them are within 2 GiB of the first.
func (o *object) assigned(t *translation) (_ *translation, err error) {
	at := *t
	at.layout = &elfwrite.Layout{Addr: o.table.At(0).Begin}
	at.section, err = t.content.Encode(at.layout.Addr)
	return &at, err
}

// unchanged reports whether a new .sframe would leave the object exactly as it is. If so, it checks the section.
func (o *object) unchanged(t *translation) (bool, error) {
	dst, err := outfile.Scratch()
	if err != nil {
		return false, err
	}
	defer dst.Close()
	if err := t.layout.Write(o.ctx, dst, o.src, t.section, nil); err != nil {
		return false, outfile.Plain(err)
	}
	info, err := dst.Stat()
	if err != nil || uint64(info.Size()) != o.f.Size {
		return false, err
	}
	size := info.Size()
	same, err := outfile.Equal(io.NewSectionReader(dst, 0, size), io.NewSectionReader(o.f.Contents(), 0, size))
	if err != nil || !same {
		return false, err
	}
	if t, err = o.assigned(t); err != nil {
		return false, err
	}
	return true, o.reread(nil, t)
}
