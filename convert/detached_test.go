package convert_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// convertBytes is convert.Convert in memory.
func convertBytes(b []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	return out.Bytes(), res, err
}

// TestAttachWrong attaches a separate section after each of its bytes was changed: what is written is what a conversion
// writes, or the same in other words. Of most changes there is an error.
func TestAttachWrong(t *testing.T) {
	file, err := os.ReadFile("../testdata/bin/amd64/plt")
	if err != nil {
		t.Fatal(err)
	}
	alone, res, err := convertBytes(file, convert.Options{Version: sframe.V2, Detach: true})
	if err != nil || !res.Facts[0].Verified {
		t.Fatalf("%+v, %v", res, err)
	}
	path := filepath.Join(t.TempDir(), "plt.sframe")
	e, err := elf.NewFile(bytes.NewReader(alone))
	if err != nil {
		t.Fatal(err)
	}
	opt := convert.Options{Attach: true, SFrame: path}
	s := e.Section(sframe.SectionName)
	refused := 0
	for i := range s.Size {
		changed := bytes.Clone(alone)
		changed[s.Offset+i] ^= 1
		if err := os.WriteFile(path, changed, 0o666); err != nil {
			t.Fatal(err)
		}
		out, _, err := convertBytes(file, opt)
		if err != nil {
			refused++
			continue
		}
		c, err := convert.Check(bytes.NewReader(out), int64(len(out)), convert.Options{})
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
	if err := os.WriteFile(path, wrong, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := convertBytes(file, opt); err == nil || !strings.Contains(err.Error(), "is not that of this file") {
		t.Errorf("wrong row: %v", err)
	}
	opt.DryRun = true
	if _, _, err := convertBytes(file, opt); err == nil || !strings.Contains(err.Error(), "is not that of this file") {
		t.Errorf("wrong row, with DryRun: %v", err)
	}
	if _, err := convert.Check(bytes.NewReader(file), int64(len(file)), convert.Options{}); !errors.Is(err, sframe.ErrNone) {
		t.Errorf("without Options.SFrame: %v", err)
	}
	c, err := convert.Check(bytes.NewReader(file), int64(len(file)), convert.Options{SFrame: path})
	if err != nil || len(c.Mismatches) == 0 {
		t.Errorf("check: %+v, %v", c, err)
	}
}
