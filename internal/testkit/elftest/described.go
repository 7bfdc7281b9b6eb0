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
	le := binary.LittleEndian
	// A CIE of version 4, addresses of 8 bytes.
	data := []byte{12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 8, 0, 1, 0x78, 16, 0}
	for _, r := range functions {
		data = Append(Append(data, le, []uint32{20, 0}), le, []uint64{r.Begin, r.End - r.Begin})
	}
	table, err := cfi.Parse(elf.EM_X86_64, le, cfi.Section{Source: cfi.DebugFrame, Data: data})
	if err != nil || table.Len() != len(functions) || table.NumErrors > 0 {
		t.Fatalf("errors %v, %v", err, table)
	}
	return table
}
