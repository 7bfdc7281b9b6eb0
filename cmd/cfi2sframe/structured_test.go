package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/sframe"
)

// maxTime limits the processor time for a file, and maxMemory the bytes allocated, including those freed early. These
// limits are several hundred times what generated files usually need.
const (
	maxTime   = 20 * time.Second
	maxMemory = 256 << 20
)

// FuzzStructured generates files with known CFI and converts them. The rows that a stack tracer finds for each pc must
// agree with the CFI; rows that compilers emit must not be missing; the rest of the file must be unchanged; and
// converting again, with or without removing .sframe first, must give the same file. If damage is not 0, some bytes are
// changed first.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 150+8*int(seed)), uint8(seed*37), uint64(0))
		f.Add(choice.Seeded(seed+1000, 250), uint8(seed*37), generate.Damage(seed))
	}
	// no section headers, no PT_INTERP, and a page inserted before the first segment
	f.Add(choice.Seeded(164, 286), uint8(0), uint64(0))
	f.Fuzz(func(t *testing.T, choices []byte, flags uint8, damage uint64) {
		if len(choices) > 4096 {
			return
		}
		file := generate.NewFile(choice.From(choices))
		opt := fuzzOptions(flags)
		opt.Share = convert.Share(flags >> 6)
		opt.Workers = 1 + int(flags>>3&1)
		opt.NoPadding = true // the generator does not know which bytes are padding
		data := file.Bytes
		if damage != 0 {
			data = generate.Damaged(data, damage)
		}
		out, c, err := fuzzBounded(t, data, opt)
		if damage != 0 {
			fuzzDamaged(t, data, out, c, opt, err)
			return
		}
		if err != nil {
			fuzzRefused(t, file, err)
			return
		}
		if len(c.Kept) > 0 && c.Facts[0].FDEs > 0 {
			t.Fatalf("unchanged: %v", c.Kept[0].Why)
		}
		fuzzCompare(t, file, out, c, opt)
		before := elftest.Parse(t, data)
		if cov := c.Facts[0]; cov.FDEs > 0 {
			if err := image.Compare(before, elftest.Parse(t, out)); err != nil {
				t.Errorf("the rest of the file: %v", err)
			}
		}
		fuzzTwice(t, data, out, opt)
	})
}

// fuzzBounded converts a file in memory, and limits the time and memory that this takes.
func fuzzBounded(t *testing.T, data []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	t.Helper()
	var out bytes.Buffer
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := processorTime(t)
	res, err := convert.Convert(context.Background(), bytes.NewReader(data), int64(len(data)), &out, opt)
	took := processorTime(t) - begin
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; took > maxTime || used > maxMemory {
		t.Errorf("%d bytes took %v and %d bytes of memory", len(data), took, used)
	}
	if err != nil && out.Len() > 0 {
		t.Errorf("%d bytes were written before the error %v", out.Len(), err)
	}
	if errors.Is(err, convert.ErrWrong) {
		t.Error(err)
	}
	return out.Bytes(), res, err
}

// fuzzRefused checks that the error for a valid file is justified.
func fuzzRefused(t *testing.T, file *generate.File, err error) {
	t.Helper()
	switch {
	case errors.Is(err, convert.ErrNoCode):
		if slices.ContainsFunc(file.Rows(), func(r generate.Row) bool { return r.Rules != nil }) {
			t.Errorf("%v, but it does", err)
		}
	case strings.Contains(err.Error(), "no room for"): // program headers
		if !strings.Contains(err.Error(), "file offset 0x") && !strings.Contains(err.Error(), "0x") {
			t.Errorf("%v: the error gives no place", err)
		}
	case errors.Is(err, sframe.ErrNone), strings.Contains(err.Error(), "SFrame ABI"),
		strings.Contains(err.Error(), "does not support ABI"), strings.Contains(err.Error(), "format 2 or 3 only"):
		// V1 does not support s390x
	default:
		t.Errorf("a sound file is refused: %v", err)
	}
}

// section decodes the .sframe of a file.
func section(t *testing.T, out []byte) (*elffile.File, *sframe.Section) {
	t.Helper()
	x := elftest.Parse(t, out)
	where := must.Get(elfwrite.FindSFrame(x))(t)
	var b []byte
	addr := uint64(0)
	switch {
	case x.IsObject():
		s := &x.Sections[where.Section]
		b = must.Get(x.ReadRelocated(s))(t)
		b[3] |= byte(sframe.FDEFuncStartPCRel) // relocated addresses are relative to the field
		addr = s.Base
	case where.Segment >= 0:
		p := &x.Progs[where.Segment]
		b = must.Get(x.ReadAt("PT_GNU_SFRAME", p.Off, p.Filesz))(t)
		addr = p.Vaddr
	default:
		t.Fatal("there is no .sframe")
	}
	s := must.Get(sframe.Decode(b, addr))(t)
	if x.IsObject() {
		s = s.Sorted()
	}
	return x, s
}

// fuzzCompare compares a result with the generated CFI.
func fuzzCompare(t *testing.T, file *generate.File, out []byte, res *convert.Result, opt convert.Options) {
	t.Helper()
	c := res.Facts[0]
	rows := file.Rows()
	var described uint64
	for i := range rows {
		described += rows[i].End - rows[i].Begin
	}
	if c.Described != described {
		t.Errorf("%d bytes are reported as described; the file was made with %d", c.Described, described)
	}
	if c.FDEs == 0 {
		if c.Covered > 0 {
			t.Errorf("%d bytes are reported as covered without an FDE", c.Covered)
		}
		return
	}
	_, s := section(t, out)
	r := must.Get(readback.New(file.Machine.Elf, file.Machine.Order, s))(t)
	var covered uint64
	for i := range rows {
		w := &rows[i]
		fact := &readback.Fact{Rules: w.Rules, Signal: w.Signal, KeyB: w.KeyB}
		n := 0
		for pc := w.Begin; pc < w.End; pc++ {
			ok, err := r.Row(pc, fact)
			if err != nil {
				t.Fatalf("V%d: %v", opt.Version, err)
			}
			if ok {
				n++
			}
		}
		covered += uint64(n)
		if n > 0 && uint64(n) < w.End-w.Begin {
			t.Errorf("of the row %#x-%#x %d bytes are covered", w.Begin, w.End, n)
		}
		if n == 0 && isTypical(file.Machine, w, opt) {
			t.Errorf("V%d: no gap is reported for %#x-%#x, %+v", opt.Version, w.Begin, w.End, *w.Rules)
		}
		// Elsewhere, no code may be covered.
		for _, pc := range []uint64{w.Begin - 1, w.End} {
			if generate.At(rows, pc) == nil {
				if _, err := r.Row(pc, nil); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if covered != c.Covered {
		t.Errorf("%d bytes are covered; the report says %d", covered, c.Covered)
	}
}

// isTypical reports whether a row is of a form that compilers emit and every version can express.
func isTypical(m *generate.Machine, w *generate.Row, opt convert.Options) bool {
	r := w.Rules
	if r == nil || w.Signal || r.Sign > cfi.Signed || r.CFA.Rule != cfi.RuleCFA || r.RAReg != m.RA ||
		r.SP.Rule != cfi.RuleArchitectural {
		return false
	}
	if base := r.CFA.Reg; base != m.SP && base != m.FP || m.SP == m.FP {
		return false
	}
	small := func(n int64) bool { return n != 0 && n%8 == 0 && n > -1<<15 && n < 1<<15 }
	if !small(r.CFA.Offset) || m.FixedRA == 0 && r.CFA.Offset < 0 {
		return false
	}
	saved := func(v *cfi.Rule) bool { return v.Rule == cfi.RuleOffset && small(v.Offset) }
	switch {
	case m.FixedRA != 0: // amd64
		return r.RA.Rule == cfi.RuleOffset && r.RA.Offset == m.FixedRA &&
			(saved(&r.FP) || r.FP.Rule == cfi.RuleArchitectural)
	case r.CFA.Offset < 160:
		return false // s390x encodes CFA offsets relative to 160
	}
	return saved(&r.RA) && saved(&r.FP)
}

// fuzzRemoved removes .sframe from a file in memory.
func fuzzRemoved(t *testing.T, data []byte) ([]byte, error) {
	t.Helper()
	f := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
	defer f.Close()
	run := &convert.Run{In: bytes.NewReader(data), Size: int64(len(data)), Create: func() (*os.File, error) {
		return f, nil
	}}
	res, err := convert.Remove(t.Context(), run, "")
	if err != nil || res.Stays != "" {
		return data, err
	}
	return os.ReadFile(f.Name())
}

// fuzzTwice converts a converted file, and the file without .sframe: both must give the same result.
func fuzzTwice(t *testing.T, data, out []byte, opt convert.Options) {
	t.Helper()
	force := opt
	force.Force = true
	again, _, err := fuzzBounded(t, out, force)
	if err != nil || !bytes.Equal(again, out) {
		t.Errorf("a second conversion gives a different file (%v)", err)
	}
	update := opt
	update.Update = true
	if _, res, err := fuzzBounded(t, out, update); err != nil || res.Stays != convert.Current &&
		len(res.Facts) > 0 && res.Facts[0].FDEs > 0 {
		t.Errorf("--update changes it (%v, %v)", res, err)
	}
	plain, err := fuzzRemoved(t, out)
	if err != nil {
		if x := elftest.Parse(t, out); x.Section(".sframe") != nil {
			t.Errorf("removed: %v", err)
		}
		return
	}
	if x, y := elftest.Parse(t, data), elftest.Parse(t, plain); !x.IsObject() {
		if err := image.Contents(x, y); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	last, _, err := fuzzBounded(t, plain, opt)
	if err != nil {
		t.Errorf("converted after it was removed: %v", err)
		return
	}
	if !bytes.Equal(last, out) {
		t.Errorf("converted after it was removed: a different file: %s", firstDifference(last, out))
	}
}

// fuzzDamaged checks that the conversion of a damaged file fails with a plausible message, or that .sframe agrees with
// the CFI as package cfi reads it.
func fuzzDamaged(t *testing.T, data, out []byte, res *convert.Result, opt convert.Options, err error) {
	t.Helper()
	if err != nil {
		if err.Error() == "" || strings.Contains(err.Error(), "%!") || strings.Contains(err.Error(), "runtime error") {
			t.Errorf("error %q", err)
		}
		return
	}
	if len(res.Kept) > 0 || len(res.Facts) == 0 || res.Facts[0].FDEs == 0 {
		return
	}
	x, s := section(t, out)
	table, err := cfi.Load(x, cfi.Auto, nil)
	if err != nil {
		t.Fatalf("the result has no CFI: %v", err)
	}
	r := must.Get(readback.New(table.Machine, table.Order, s))(t)
	for fn := range table.Functions() {
		fact := readback.Fact{Signal: fn.Signal(), KeyB: fn.KeyB()}
		if fn.Err() != nil {
			if _, err := r.Row(fn.Begin, &fact); err != nil {
				t.Fatalf("V%d: %v", opt.Version, err)
			}
		}
		for row := range fn.Rows() {
			fact.Rules = row.Rules
			for _, pc := range []uint64{row.Begin, row.Begin + (row.End-row.Begin)/2, row.End - 1} {
				if _, err := r.Row(pc, &fact); err != nil {
					t.Fatalf("V%d: %v", opt.Version, err)
				}
			}
		}
	}
	// Headers, sections and CFI of a damaged file may contradict each other, so less can be checked.
	force := opt
	force.Force = true
	again, _, err := fuzzBounded(t, out, force)
	if before, openErr := elffile.New(bytes.NewReader(data), int64(len(data))); openErr == nil && !before.IsObject() &&
		image.Contents(before, before) != nil {
		return
	}
	if err != nil || !bytes.Equal(again, out) {
		t.Errorf("a second conversion gives a different file (%v): %s", err, firstDifference(again, out))
	}
}

// firstDifference describes where two files differ.
func firstDifference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("from file offset %#x", i)
		}
	}
	return fmt.Sprintf("%d and %d bytes", len(a), len(b))
}
