package convert_test

import (
	"bytes"
	"debug/elf"
	"os"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// TestAttachWrong attaches a separate section after each of its bytes was changed: what is written is what a conversion
// writes, or the same in other words. Of most changes there is an error.
func TestAttachWrong(t *testing.T) {
	file, err := os.ReadFile("../testdata/bin/amd64/plt")
	if err != nil {
		t.Fatal(err)
	}
	alone, res, err := do(file, detach(convert.Options{Version: sframe.V2}))
	if err != nil || !res.Facts[0].Verified {
		t.Fatalf("%+v, %v", res, err)
	}
	e, err := elf.NewFile(bytes.NewReader(alone))
	if err != nil {
		t.Fatal(err)
	}
	s := e.Section(sframe.SectionName)
	refused := 0
	for i := range s.Size {
		changed := bytes.Clone(alone)
		changed[s.Offset+i] ^= 1
		out, _, err := do(file, attach(changed))
		if err != nil {
			refused++
			continue
		}
		c, err := check(out)
		if err != nil || len(c.Mismatches) > 0 {
			t.Errorf("byte %d: %+v, %v", i, c, err)
		}
	}
	if refused < int(s.Size)/2 {
		t.Errorf("%d of %d changes refused", refused, s.Size)
	}
	// A CFA of another offset, in the first row.
	d, err := sframe.FromELF(e)
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Clone(alone)
	wrong[s.Offset+28+20*uint64(d.Len())+2] += 8
	for _, j := range []job{attach(wrong), dry(attach(wrong))} {
		if _, _, err := do(file, j); err == nil || !strings.Contains(err.Error(), "is not that of this file") {
			t.Errorf("wrong row: %v", err)
		}
	}
}
