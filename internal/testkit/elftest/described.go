package elftest

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"cfi2sframe/cfi"
)

// A Range is a range of addresses, End excluded.
type Range struct{ Begin, End uint64 }

// Described returns a table of functions on amd64 without any instructions.
func Described(t testing.TB, functions ...Range) *cfi.Table {
	t.Helper()
	var f Frames
	cie := f.CIE()
	for _, r := range functions {
		f.FDE(cie, r.Begin, r.End-r.Begin)
	}
	table, err := cfi.Parse(elf.EM_X86_64, binary.LittleEndian, cfi.Section{Source: cfi.EHFrame, Data: f.B})
	if err != nil || table.Len() != len(functions) || table.NumErrors > 0 {
		t.Fatalf("errors %v, %v", err, table)
	}
	return table
}
