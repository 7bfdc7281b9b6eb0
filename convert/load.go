package convert

import (
	"errors"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/verify"
)

// LoadCFI is cfi.Load, without the rows of .gopclntab that are not proved by the code. No other table describes frames
// without saying so, and a function more than the check can follow does not make the others wrong.
func LoadCFI(f *elffile.File, src cfi.Source, debug *elffile.File) (*cfi.Table, error) {
	t, err := cfi.Load(f, src, debug)
	if err != nil {
		return nil, err
	}
	err = verify.Go(t, f, t.Withdraw)
	if errors.Is(err, verify.ErrGo) { // of the whole table
		for fn := range t.Functions() {
			if fn.Section() == ".gopclntab" {
				t.Withdraw(fn, err.Error())
			}
		}
		err = nil
	}
	return t, err
}
