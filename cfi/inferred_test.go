package cfi

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestInfer adds functions before, between and after the functions of a section.
func TestInfer(t *testing.T) {
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	w.Entry(cie, w.Addresses(textAddr+0x100, 0x10), []byte{0x0e, 24})
	w.Entry(cie, w.Addresses(textAddr+0x200, 0x10), []byte{0x0e, 32})
	table, err := Load(tinyELF(t, amd64, ".eh_frame", w.B), Auto, nil)
	if err != nil || table.Len() != 2 {
		t.Fatalf("%d functions, error %v", table.Len(), err)
	}
	const rbx, rbp, rsp, ra = 3, 6, 7, 16
	saved := []InferredRow{{Reg: rsp, Offset: 8}, {Off: 1, Reg: rsp, Offset: 16},
		{Off: 4, Reg: rbp, Offset: 16, FP: -16},
		{Off: 0x300, Reg: rsp, Offset: 1 << 20, Lost: true}, {Off: 0x20000, Reg: rbx, Offset: 0}}
	programs := table.NumPrograms()
	table.Infer(&Inference{Functions: []InferredFunction{
		{Begin: textAddr, End: textAddr + 0x20, Rows: saved[:1]},
		{Begin: textAddr + 0x110, End: textAddr + 0x118, Rows: saved[:3]},
		{Begin: textAddr + 0x118, End: textAddr + 0x200, Rows: saved[:3]},
		{Begin: textAddr + 0x1000, End: textAddr + 0x30000, Rows: saved},
	}})
	if n := table.NumPrograms() - programs; n != 3 ||
		table.Find(textAddr+0x110).Program() != table.Find(textAddr+0x118).Program() {
		t.Errorf("%d programs, want 3: two functions share one", n)
	}
	var got []string
	for fn := range table.Functions() {
		if fn.Err() != nil || fn.Inferred() != (fn.Section() == Inferred) {
			t.Errorf("%#x in %s: inferred %t, error %v", fn.Begin, fn.Section(), fn.Inferred(), fn.Err())
		}
		for r := range fn.Rows() {
			got = append(got, fmt.Sprintf("%#x-%#x %v %v %v", r.Begin-textAddr, r.End-textAddr, r.CFA, r.RA, r.FP))
			for _, pc := range []uint64{r.Begin, r.End - 1} {
				if found, ok := table.Lookup(pc); !ok || found.Number != r.Number || r.RAReg != ra ||
					table.Find(pc) != fn {
					t.Errorf("%#x: found %v", pc, found)
				}
			}
		}
	}
	want := []string{
		"0x0-0x20 r7+8 c-8 none",
		"0x100-0x110 r7+24 c-8 none",
		"0x110-0x111 r7+8 c-8 none", "0x111-0x114 r7+16 c-8 none", "0x114-0x118 r6+16 c-8 c-16",
		"0x118-0x119 r7+8 c-8 none", "0x119-0x11c r7+16 c-8 none", "0x11c-0x200 r6+16 c-8 c-16",
		"0x200-0x210 r7+32 c-8 none",
		"0x1000-0x1001 r7+8 c-8 none", "0x1001-0x1004 r7+16 c-8 none", "0x1004-0x1300 r6+16 c-8 c-16",
		"0x1300-0x21000 r7+1048576 c-8 u", "0x21000-0x30000 r3+0 c-8 none",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, ok := table.Lookup(textAddr + 0x20); ok {
		t.Error("a row after the first function")
	}
	if last := table.Sources[len(table.Sources)-1]; last != (SourceInfo{Inferred, 0, 4}) {
		t.Errorf("source %+v", last)
	}
	// The rows of a function are withdrawn, but not those of others.
	fn, other := table.Find(textAddr+0x200), table.Find(textAddr+0x100)
	table.Withdraw(fn, "wrong")
	if e, ok := fn.Err().(*Error); !ok || *e != (Error{".eh_frame", fn.Offset(), "wrong"}) || len(fn.Steps()) > 0 ||
		other.Err() != nil || fn.Program() != table.NumPrograms()-1 {
		t.Errorf("withdrawn: errors %v and %v", fn.Err(), other.Err())
	}
}

// TestInferLinkRegister adds a function for a machine whose calls leave the return address in a register.
func TestInferLinkRegister(t *testing.T) {
	const fp, lr, sp = 29, 30, 31
	table := must.Get(Parse(elf.EM_AARCH64, binary.LittleEndian))(t)
	for begin := uint64(textAddr); begin < textAddr+0x200; begin += 0x100 {
		table.Infer(&Inference{Functions: []InferredFunction{{Begin: begin, End: begin + 0x20, Rows: []InferredRow{
			{Reg: sp, RAReg: lr}, {Off: 4, Reg: sp, RAReg: 9}, {Off: 8, Reg: sp, RAReg: lr, Signed: true},
			{Off: 12, Reg: sp, Offset: 16, RA: -8, RAReg: lr, FP: -16, Signed: true},
			{Off: 16, Reg: fp, Offset: 16, RAReg: lr},
		}}}})
	}
	for fn := range table.Functions() {
		var got []string
		for r := range fn.Rows() {
			got = append(got, r.Rules.String())
		}
		if want := []string{"CFA r31+0, RA none, FP none, SP none", "CFA r31+0, RA r9, FP none, SP none",
			"CFA r31+0, RA none, FP none, SP none, signed", "CFA r31+16, RA c-8, FP c-16, SP none, signed",
			"CFA r29+16, RA none, FP none, SP none"}; !slices.Equal(got, want) {
			t.Errorf("rows %q; want %q", got, want)
		}
	}
	if table.NumPrograms() != 2 { // the second Inference has its own CIE
		t.Errorf("%d programs", table.NumPrograms())
	}
}
