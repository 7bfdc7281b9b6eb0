package cfi

import (
	"slices"
	"testing"
)

// TestPrograms checks that functions share a program number if and only if their CIE and instructions are the same.
func TestPrograms(t *testing.T) {
	for _, tg := range targets {
		w := ehFrame(tg)
		first, second := w.Shared(plainCIE), w.Shared(plainCIE)
		rows := []byte{0x41, 0x0e, 16, 0x48, 0x0e, 8} // rows at 1 and 9
		other := []byte{0x41, 0x0e, 24, 0x48, 0x0e, 8}
		setLoc := append([]byte{0x01}, tg.order.AppendUint64(nil, textAddr+0x600+1)...)
		tests := []struct {
			cie    int
			size   uint64
			code   []byte
			number int
		}{
			{first, 0x40, rows, 0},
			{first, 0x40, rows, 0},
			{first, 9, rows, 0}, // without the last row
			{second, 0x40, rows, 1},
			{first, 0x40, other, 2},
			{first, 0x40, slices.Concat(rows, []byte{0}), 3},
			{first, 0x40, slices.Concat(setLoc, []byte{0x0e, 16}), 4},
			{first, 0x40, []byte{0x3e}, 5}, // malformed
			{first, 0x11, rows, 0},
			{first, 0x40, rows, -1}, // truncated by the previous FDE
		}
		for i, tt := range tests {
			start := textAddr + 0x100*uint64(i)
			if i+1 < len(tests) && tests[i+1].number < 0 {
				start += 0xf0
			}
			w.Entry(tt.cie, w.Addresses(start, tt.size), tt.code)
		}
		table, err := Load(tinyELF(t, tg, ".eh_frame", w.B), Auto, nil)
		if err != nil || table.Len() != len(tests) {
			t.Fatalf("%d functions, errors %v %v; want %d", table.Len(), table.Errors, err, len(tests))
		}
		work := uint64(0) // 16 for each program, and its instructions
		for _, p := range table.programs.all {
			work += 16 + uint64(p.limit-p.code)
		}
		if got := table.programs.work(); got != work {
			t.Errorf("%v: work is %d, want %d", tg.machine, got, work)
		}
		a, b := table.At(0), table.At(4) // the same CIE
		p := &table.programs.all[a.Program()]
		if c := table.At(3); !p.matches(a) || p.matches(b) || p.matches(c) {
			t.Errorf("%v: the program matches %t, %t, %t; want only the first", tg.machine, p.matches(a), p.matches(b),
				p.matches(c))
		}
		if table.NumPrograms() != 6 {
			t.Errorf("%v: %d programs, want 6", tg.machine, table.NumPrograms())
		}
		for i, tt := range tests {
			if n := table.At(i).Program(); n != tt.number {
				t.Errorf("%v: function %d has number %d, want %d", tg.machine, i, n, tt.number)
			}
		}
	}
}
