package translate

import (
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// TestEpilogue translates the end of a function that realigns its stack, with and without its code. Two functions with
// the same CFI have different code.
func TestEpilogue(t *testing.T) {
	// CFA r10, rbp saved at rbp; then CFA rsp+8, starting at offset 5.
	onR10 := func(offset byte) []byte { return []byte{0x0c, 10, offset, 0x10, 6, 2, 0x76, 0, 0x45, 0x0c, 7, 8} }
	code := "\x5d\x49\x8d\x62\xf8\xe9\x00\x01\x00\x00" + // pop %rbp; lea -8(%r10),%rsp; jmp to another function
		"\x90\x49\x8d\x62\xf8\x5d\xc3\x0f\x1f\x00" // nop; lea; pop %rbp; ret; a no-op
	const (
		asCFI  = ": 0x0 r10+0 fp *(fp+0) 0x5 sp+8 fp *(fp+0)\n"
		above  = ": 0x0 r10+8 fp *(fp+0) 0x5 sp+8 fp *(fp+0)\n"
		saved  = ": 0x0 r10+0 fp *(c-16) 0x5 sp+8 fp *(c-16)\n"
		loaded = ": 0x0 *(r10+0) fp *(fp+0) 0x5 sp+8 fp *(fp+0)\n"
		popped = ": 0x0 r10+0 fp *(fp+0) 0x1 r10+0 0x5 sp+8\n"
	)
	readJump := func(distance string) func(addr, n uint64) []byte { // from 0x100a
		code := code[:6] + distance + code[10:]
		return func(addr, n uint64) []byte {
			if addr < 0x1000 || addr+n > 0x1000+uint64(len(code)) {
				t.Errorf("unexpected read of %d bytes at %#x", n, addr)
				return nil
			}
			return []byte(code)[addr-0x1000:][:n]
		}
	}
	read := readJump("\x00\x01\x00\x00")
	for _, tt := range []struct {
		name string
		opt  Options
		cfi  []byte
		want string
	}{
		{"with code", Options{Code: read}, onR10(0), "0x1000+0xa" + popped + "0x100a+0xa" + asCFI},
		{"with a jump to its start", Options{Code: readJump("\xf6\xff\xff\xff")}, onR10(0),
			"0x1000+0xa" + popped + "0x100a+0xa" + asCFI},
		{"with a jump to its end", Options{Code: readJump("\x00\x00\x00\x00")}, onR10(0),
			"0x1000+0xa" + popped + "0x100a+0xa" + asCFI},
		{"with a jump that stays in it", Options{Code: readJump("\xf7\xff\xff\xff")}, onR10(0),
			"0x1000+0xa" + asCFI + "0x100a+0xa" + asCFI},
		{"with padding", Options{Code: read, Padding: []uint8{0, 5}}, onR10(0),
			"0x1000+0xa" + popped + "0x100a+0xf" + asCFI},
		{"with another frame pointer rule", Options{Code: read}, slices.Concat([]byte{0x0c, 10, 0, 0x86, 2},
			[]byte{0x45, 0x0c, 7, 8}), "0x1000+0xa" + saved + "0x100a+0xa" + saved},
		{"a CFA loaded by the register", Options{Code: read}, slices.Concat([]byte{0x0f, 3, 0x7a, 0, 6}, onR10(0)[3:]),
			"0x1000+0xa" + loaded + "0x100a+0xa" + loaded},
		{"with other rows within the epilogue", Options{Code: read}, slices.Concat(onR10(0)[:8],
			[]byte{0x45, 0x0c, 10, 8, 0x41, 0x0c, 7, 8, 0x41, 0x0c, 10, 0}), "0x1000+0xa: 0x0 r10+0 fp *(fp+0)" +
			" 0x1 r10+0 0x5 r10+8 fp *(fp+0) 0x6 sp+8 0x7 r10+0 fp *(fp+0)\n0x100a+0xa: 0x0 r10+0 fp *(fp+0)" +
			" 0x5 r10+8 fp *(fp+0) 0x6 sp+8 fp *(fp+0) 0x7 r10+0 fp *(fp+0)\n"},
		{"a CFA above the register", Options{Code: read}, onR10(8), "0x1000+0xa" + above + "0x100a+0xa" + above},
		{"without code", Options{}, onR10(0), "0x1000+0xa" + asCFI + "0x100a+0xa" + asCFI},
		{"code that cannot be read", Options{Code: func(_, _ uint64) []byte { return nil }}, onR10(0),
			"0x1000+0xa" + asCFI + "0x100a+0xa" + asCFI},
		{"V2", Options{Version: sframe.V2, Code: read}, onR10(0), ""},
		{"without flexible FDEs", Options{Plain: true, Code: read}, onR10(0), ""},
	} {
		if tt.opt.Version == 0 {
			tt.opt.Version = sframe.V3
		}
		var sink recorder
		table := parse(t, "", testFunc{0x1000, 10, tt.cfi}, testFunc{0x100a, 10, tt.cfi})
		res, err := Translate(table, tt.opt, &sink)
		if err != nil || sink.String() != tt.want {
			t.Errorf("%s: error %v\n%swant\n%s", tt.name, err, &sink, tt.want)
			continue
		}
		if covered := uint64(20); tt.want != "" && res.Covered != covered {
			t.Errorf("%s: %d bytes covered, want %d", tt.name, res.Covered, covered)
		}
		tt.opt.Version = sframe.V2
		if v2 := must.Get(Translate(table, tt.opt, Discard()))(t); v2.Covered+res.OnlyV3 != res.Covered {
			t.Errorf("%s: %d bytes covered in V3 only, but V2 covers %d of %d", tt.name, res.OnlyV3, v2.Covered,
				res.Covered)
		}
	}
}
