package convert

import (
	"context"
	"errors"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// A Format is what there is to choose about the form of a section.
type Format struct {
	Version   sframe.Version
	PCRel     bool // start addresses count from their own field
	Outermost bool // there are rows without data words, for code without a caller
}

// maxFormatRows bounds the rows that are looked at for those without data words: FDEs can share them.
const maxFormatRows = 1 << 24

// errNoSection is returned for objects without an .sframe.
var errNoSection = errors.New("there is no section .sframe")

// FormatFile returns the format of the .sframe that a file has, whoever wrote it. Without one, the error is
// sframe.ErrNone.
func FormatFile(ctx context.Context, path string) (Format, error) {
	in, err := openInput(ctx, path, use{})
	if err != nil {
		return Format{}, err
	}
	defer in.close()
	f, err := openELF(elffile.NewBudget(in.info.Size()), in.src, in.info.Size())
	if err != nil {
		return Format{}, err
	}
	s, err := section(f)
	if failed := f.ReadError(); failed != nil {
		return Format{}, outfile.Plain(failed)
	}
	if err == errNoSection {
		err = sframe.ErrNone
	}
	if err != nil {
		return Format{}, err
	}
	return formatOf(s)
}

// formatOf returns the format of a section.
func formatOf(s *sframe.Section) (Format, error) {
	l, _ := s.Version.Layout()
	found := Format{Version: s.Version, PCRel: l.PCRel || s.Flags&sframe.FDEFuncStartPCRel != 0, Outermost: l.Outermost}
	if found.Outermost || !l.Errata2 {
		return found, nil
	}
	reader, rows := s.NewReader(), 0
	var refs []sframe.Ref
	for i := range s.Len() {
		var err error
		if _, refs, err = reader.Refs(i, refs[:0]); err != nil {
			return Format{}, err
		}
		if rows += len(refs); rows > maxFormatRows {
			return Format{}, fmt.Errorf("FDEs of .sframe share more than %d rows, up to FDE %d", maxFormatRows, i)
		}
	}
	for i := range reader.Rows {
		found.Outermost = found.Outermost || reader.Rows[i].Outermost
	}
	return found, nil
}
