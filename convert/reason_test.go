package convert_test

import (
	"errors"
	"fmt"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/arch"
)

// TestReasonOf expects the names used in reports, including for errors with details.
func TestReasonOf(t *testing.T) {
	for want, err := range map[convert.Reason]error{
		"not-elf": elffile.ErrNotELF, "32-bit": elffile.Err32Bit, "machine": arch.ErrABI, "no-cfi": cfi.ErrNone,
		"no-code": convert.ErrNoCode, "no-room": elfwrite.ErrNoRoom, "no-sframe": elfwrite.ErrNone,
	} {
		if got := convert.ReasonOf(fmt.Errorf("file x: %w", err)); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
	for _, err := range []error{nil, errors.New("x"), convert.ErrWrong} {
		if got := convert.ReasonOf(err); got != "" {
			t.Errorf("%v is %q", err, got)
		}
	}
}
