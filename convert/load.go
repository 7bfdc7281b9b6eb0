package convert

import (
	"context"
	"debug/elf"
	"errors"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/verify"
)

// A Loading tells which call frame information is loaded.
type Loading struct {
	Source   cfi.Source    // sections from which CFI is loaded
	Debug    *elffile.File // the debug file, or nil
	Infer    bool          // also infer rows for code without CFI; this takes minutes for large programs
	Progress Progress      // called while rows are inferred, or nil
}

// LoadCFI is like cfi.Load, but withdraws rows from .gopclntab that cannot be verified against the code. Rows from
// other sections are trusted, because only Go's table may silently omit frames. One unverifiable function does not
// invalidate the others. Inferred rows are verified. The inference ends with an error if ctx is done.
func LoadCFI(ctx context.Context, f *elffile.File, l Loading) (*cfi.Table, error) {
	t, none := cfi.Load(f, l.Source, l.Debug)
	if errors.Is(none, cfi.ErrNone) && l.Infer {
		var err error
		if t, err = cfi.Parse(elf.Machine(f.Machine), f.Order); err != nil {
			return nil, err
		}
	} else if none != nil {
		if l.Source == cfi.Auto && errors.Is(none, cfi.ErrNone) {
			none = mayInfer(f, none)
		}
		return nil, none
	}
	if err := proveGo(f, t); err != nil {
		return nil, err
	}
	if l.Infer {
		if err := infer(ctx, f, t, l.Progress); err != nil {
			return nil, err
		}
	}
	if none != nil && t.Len() == 0 {
		return nil, notInferred(t, none)
	}
	return t, nil
}

// loading returns what is loaded, with the given debug file, which may be nil.
func (o *Options) loading(debug *Companion) Loading {
	return Loading{o.Source, debug.File(), o.Infer, o.Progress}
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
