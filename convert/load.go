package convert

import (
	"context"
	"debug/elf"
	"errors"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/verify"
)

// LoadCFI is like cfi.Load, but withdraws rows from .gopclntab that cannot be verified against the code. Rows from
// other sections are trusted, because only Go's table may silently omit frames. One unverifiable function does not
// invalidate the others. If inferring is set, the table also contains verified rows for code without CFI; this takes
// minutes for large programs, and ends with an error if ctx is done.
func LoadCFI(ctx context.Context, f *elffile.File, src cfi.Source, debug *elffile.File, inferring bool) (
	*cfi.Table, error,
) {
	t, none := cfi.Load(f, src, debug)
	if errors.Is(none, cfi.ErrNone) && inferring {
		var err error
		if t, err = cfi.Parse(elf.Machine(f.Machine), f.Order); err != nil {
			return nil, err
		}
	} else if none != nil {
		if src == cfi.Auto && errors.Is(none, cfi.ErrNone) {
			none = mayInfer(f, none)
		}
		return nil, none
	}
	if err := proveGo(f, t); err != nil {
		return nil, err
	}
	if inferring {
		if err := infer(ctx, f, t); err != nil {
			return nil, err
		}
	}
	if none != nil && t.Len() == 0 {
		return nil, none
	}
	return t, nil
}

// proveGo withdraws rows from .gopclntab that cannot be verified against the code.
func proveGo(f *elffile.File, t *cfi.Table) error {
	err := verify.Go(t, f, t.Withdraw)
	if errors.Is(err, verify.ErrGo) { // the whole table is wrong
		for fn := range t.Functions() {
			if fn.Section() == ".gopclntab" {
				t.Withdraw(fn, err.Error())
			}
		}
		err = nil
	}
	return err
}
