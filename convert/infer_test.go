package convert

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/testfile"
)

// TestConstantData expects no data to be read from segments other than read-only ones and RELRO.
func TestConstantData(t *testing.T) {
	b := testfile.Read(t, "../testdata/bin/amd64/plt")
	for i, h := range elftest.Parse(t, b).Progs {
		if h.Type != uint32(elf.PT_LOAD) || h.Filesz < 8 {
			continue
		}
		for _, tt := range []struct {
			typ   elf.ProgType
			flags elf.ProgFlag
			want  bool
		}{
			{elf.PT_LOAD, elf.PF_R, true}, {elf.PT_LOAD, elf.PF_R | elf.PF_W, true},
			{elf.PT_NOTE, elf.PF_R, false},
		} {
			f := elftest.Parse(t, b)
			f.Progs = f.Progs[i : i+1]
			f.Progs[0].Type, f.Progs[0].Flags = uint32(tt.typ), uint32(tt.flags)
			r := codeReader{f: f}
			got := r.data(h.Vaddr+h.Filesz-8, 100)
			if tt.want != bytes.Equal(got, b[h.Off+h.Filesz-8:][:8]) || tt.want != (got != nil) {
				t.Errorf("%v %v: %x", tt.typ, tt.flags, got)
			}
			if r.data(h.Vaddr+h.Filesz, 1) != nil || r.data(h.Vaddr-1, 1) != nil {
				t.Errorf("%v: data outside of the segment", tt.typ)
			}
		}
	}
}

// TestInferWithoutCFI loads a file without .eh_frame: it has a CFI table only if rows are inferred.
func TestInferWithoutCFI(t *testing.T) {
	p := elftest.Patch(t.Fatalf, testfile.Read(t, "../testdata/bin/amd64/prologue"))
	for _, section := range []int{p.Section(".eh_frame"), p.Section(".eh_frame_hdr")} {
		p.Put32(section, 0) // without a name
	}
	p.Put32(p.Segment(elf.PT_GNU_EH_FRAME, 0), uint32(elf.PT_NULL))
	f := elftest.Parse(t, p.B)
	if _, err := LoadCFI(t.Context(), f, Loading{}); !errors.Is(err, cfi.ErrNone) {
		t.Errorf("without inferring: %v", err)
	}
	table, err := LoadCFI(t.Context(), f, Loading{Infer: true})
	if err != nil || table.Len() == 0 {
		t.Fatalf("with inferring: %v", err)
	}
	for fn := range table.Functions() {
		if row, ok := table.Lookup(fn.Begin); !ok || !fn.Inferred() || row.CFA.Offset != 8 {
			t.Errorf("function at %#x: %v", fn.Begin, row)
		}
	}
}

// TestInferEnds ends the inference when each of its steps begins, which must return the error of the context. It
// expects progress from 0 to 1.
func TestInferEnds(t *testing.T) {
	p := elftest.Patch(t.Fatalf, testfile.Read(t, "../testdata/bin/amd64/prologue"))
	for _, section := range []int{p.Section(".eh_frame"), p.Section(".eh_frame_hdr")} {
		p.Put32(section, 0) // without a name
	}
	f := elftest.Parse(t, p.B)
	last, steps := 0.0, 0
	if _, err := LoadCFI(t.Context(), f, Loading{Infer: true, Progress: func(done float64) {
		if done < last || done > 1 {
			t.Errorf("%f after %f", done, last)
		}
		last, steps = done, steps+1
	}}); err != nil || last != 1 || steps < 4 {
		t.Fatalf("%d steps, the last with %f: %v", steps, last, err)
	}
	for end := range steps - 1 {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := LoadCFI(ctx, f, Loading{Infer: true, Progress: func(float64) {
			if calls++; calls == end+1 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) || calls != end+2 {
			t.Errorf("ended at step %d of %d: %v after %d calls", end, steps, err, calls)
		}
	}
}
