package plt_test

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// withPLT returns a file with a PLT of the given size. It has no CFI and contains stubs of 8 bytes, each of them
// jmp *x(%rip).
func withPLT(t *testing.T, size int) *elftest.Patcher {
	t.Helper()
	b := testfile.Read(t, "../../testdata/bin/amd64/pltlib.so")
	p := elftest.Patch(t.Fatalf, b)
	stub, err := hex.DecodeString("ff25000000006690") // jmp *x(%rip); xchg %ax,%ax
	if err != nil {
		t.Fatal(err)
	}
	p.BigPLT(size, stub...)
	return p
}

func find(t *testing.T, b []byte, table *cfi.Table) []plt.Stub {
	t.Helper()
	f := elftest.Parse(t, b)
	return must.Get(plt.Find(f, table))(t)
}

// A failing reader is replaced after the headers are read.
type failing struct{ io.ReaderAt }

// TestFind checks that stubs are found only in PLT sections that are loaded.
func TestFind(t *testing.T) {
	header := func(field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Section(".plt")+field, v) }
	}
	again := func(shift uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.NewSections(1, func(_, h int) {
				p.CopySection(h, ".plt")
				p.Put64(h+elftest.ShAddr, p.U64(h+elftest.ShAddr)+shift)
				p.Put64(h+elftest.ShOff, p.U64(h+elftest.ShOff)+shift)
			})
		}
	}
	machine := func(m elf.Machine, code string) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			p.Put16(18, uint16(m)) // e_machine
			copy(p.B[p.U64(p.Section(".plt")+elftest.ShOff):], must.Get(hex.DecodeString(code))(t))
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   int
	}{
		{"valid", func(*elftest.Patcher) {}, 4},
		{"PLT header for aarch64", machine(elf.EM_AARCH64,
			"f07bbfa9100000f011fe47f910e23f9120021fd61f2003d51f2003d51f2003d5"), 1},
		{"PLT header for s390x", machine(elf.EM_S390,
			"e310f0380024c01000000965d207f0301008e3101010000407f1070007000700"), 1},
		{"two identical headers", again(0), 4},
		{"overlapping", again(8), 4},
		{"adjacent", func(p *elftest.Patcher) {
			header(elftest.ShSize, 16)(p)
			again(16)(p)
		}, 4},
		{"adjacent, in reverse order", func(p *elftest.Patcher) {
			again(0)(p)
			header(elftest.ShAddr, p.U64(p.Section(".plt")+elftest.ShAddr)+16)(p)
			header(elftest.ShOff, p.U64(p.Section(".plt")+elftest.ShOff)+16)(p)
			for _, h := range []int{p.Section(".plt"), p.Header(int(p.U16(elftest.EhShnum)) - 1)} {
				p.Put64(h+elftest.ShSize, 16)
			}
		}, 4},
		{"not loaded", header(elftest.ShFlags, uint64(elf.SHF_EXECINSTR)), 0},
		{"not executable", header(elftest.ShFlags, uint64(elf.SHF_ALLOC)), 0},
		{"SHT_NOBITS", func(p *elftest.Patcher) {
			p.Put32(p.Section(".plt")+elftest.ShType, uint32(elf.SHT_NOBITS))
		}, 0},
		{"offset differs from the segment's", func(p *elftest.Patcher) {
			at := p.Append(bytes.Clone(p.B[p.U64(p.Section(".plt")+elftest.ShOff):][:32]))
			header(elftest.ShOff, uint64(at))(p)
		}, 0},
		{"address not loaded", header(elftest.ShAddr, 1<<40), 0},
		{"larger than the limit", header(elftest.ShSize, 2<<20+1), 0},
		{"in total larger than the limit", func(p *elftest.Patcher) {
			*p = *withPLT(t, 2<<20+16)
			p.B[p.U64(p.Section(".plt")+elftest.ShOff)] = 0x50 // the first section has no stubs
			header(elftest.ShSize, 16)(p)
			again(2 << 20)(p)
			header(elftest.ShSize, 2<<20)(p)
		}, 0},
		{"another name", func(p *elftest.Patcher) { p.Put32(p.Section(".plt"), p.U32(p.Section(".text"))) }, 0},
		{"another machine", machine(elf.EM_RISCV, ""), 0},
		{"after 64 others", func(p *elftest.Patcher) {
			addr, off := p.U64(p.Section(".plt")+elftest.ShAddr), p.U64(p.Section(".plt")+elftest.ShOff)
			header(elftest.ShSize, 0)(p)
			p.NewSections(65, func(i, h int) {
				p.CopySection(h, ".plt")
				if i == 64 { // only this section has stubs; those before it are empty
					p.Put64(h+elftest.ShAddr, addr)
					p.Put64(h+elftest.ShOff, off)
					p.Put64(h+elftest.ShSize, 32)
				}
			})
		}, 0},
	} {
		p := withPLT(t, 32)
		tt.change(p)
		got := find(t, p.B, &cfi.Table{})
		byBegin := func(a, b plt.Stub) int { return cmp.Compare(a.Begin, b.Begin) }
		if len(got) != tt.want || !slices.IsSortedFunc(got, byBegin) {
			t.Errorf("%s: %+v; want %d stubs, sorted by address", tt.name, got, tt.want)
		}
	}
	b := withPLT(t, 32).B
	r := &failing{ReaderAt: bytes.NewReader(b)}
	f := must.Get(elffile.New(r, int64(len(b))))(t)
	r.ReaderAt = bytes.NewReader(nil)
	if _, err := plt.Find(f, &cfi.Table{}); err == nil {
		t.Error("the PLT cannot be read, but there is no error")
	}
	budget := elffile.NewBudget(0)
	must.Do(t, budget.Spend(1, 1_200_000_000))
	f = must.Get(elffile.NewIn(budget, bytes.NewReader(b), int64(len(b))))(t)
	if _, err := plt.Find(f, &cfi.Table{}); !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("error %v without a budget", err)
	}
	stubs := find(t, b, &cfi.Table{})
	for i, s := range stubs {
		// At the target of a call, the return address is at the top of the stack.
		if begin := uint64(0x100000 + 8*i); s.Begin != begin || s.End != begin+8 || len(s.Steps) != 1 ||
			s.Steps[0] != (plt.Step{CFA: 8}) {
			t.Errorf("stub %d: %+v", i, s)
		}
	}
	for end, want := range map[uint64]int{8: 3, 24: 1, 32: 0} { // end of the code covered by CFI
		table := generate.Described(t, generate.Range{Begin: 0x100000, End: 0x100000 + end})
		if got := find(t, withPLT(t, 32).B, table); len(got) != want {
			t.Errorf("with CFI for %d bytes: %+v; want %d stubs", end, got, want)
		}
	}
}
