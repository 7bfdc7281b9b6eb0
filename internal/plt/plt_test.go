package plt

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
)

// stubs returns the stubs of a section.
func stubs(m *stubForms, code []byte, addr uint64, t *cfi.Table) []Stub {
	entry := map[*stubForms]int32{amd64(): 8, aarch64(): 0, s390x(): 160} // of CFA - SP, according to the ABIs
	w := walker{stubForms: m, entry: entry[m]}
	w.section(code, addr, t)
	return w.certainStubs()
}

// PLTs of lld 14 and 23.
const (
	retpoline = "ff3500000000 4c8b1d00000000 e80e000000" + // push x(%rip); mov x(%rip),%r11; call 0x1020
		"f390 0faee8 ebf9 cccccccccccccc" + // pause; lfence; jmp 0x1012
		"4c891c24 c3 cccccccccccccccccccccc" + // mov %r11,(%rsp); ret
		"4c8b1d00000000 e8e4ffffff e9d1ffffff" + // mov x(%rip),%r11; call 0x1020; jmp 0x1012
		"6800000000 e9b5ffffff cccccccccc" // push $0; jmp 0x1000
	retpolineNow = "e80b000000 f390 0faee8 ebf9 cccccccc" + // call 0x1010; pause; lfence; jmp 0x1005
		"4c891c24 c3 cccccccccccccccccccccc" + // mov %r11,(%rsp); ret
		"4c8b1d00000000 e9d4ffffff cccccccc" // mov x(%rip),%r11; jmp 0x1000
)

// TestSection finds the stubs in the PLTs of each linker.
func TestSection(t *testing.T) {
	const addr = 0x1000
	one := []Step{{CFA: 8}}
	for _, tt := range []struct {
		name string
		m    *stubForms
		code string
		want []Stub
		// The number of bits in operands of the stubs' instructions: 32 of displacements and immediates on amd64, 21 of
		// adrp, 12 of ldr and add, 16 of brk. Bits that make a stub jump into itself after a push are not counted.
		operands int
	}{
		{"lld, lazy", amd64(), "ff354a220000 ff254c220000 0f1f4000" + "ff254a220000 6800000000 e9e0ffffff" +
			"ff2542220000 6801000000 e9d0ffffff",
			[]Stub{
				{0x1000, 0x1010, []Step{{CFA: 16}, {Offset: 6, CFA: 24}}},
				{0x1010, 0x1020, []Step{{CFA: 8}, {Offset: 11, CFA: 16}}},
				{0x1020, 0x1030, []Step{{CFA: 8}, {Offset: 11, CFA: 16}}},
			}, 254},
		{"lld, IBT", amd64(), "ff359a220000 ff259c220000 0f1f4000" + "f30f1efa 6800000000 e9e2ffffff 6690",
			[]Stub{
				{0x1000, 0x1010, []Step{{CFA: 16}, {Offset: 6, CFA: 24}}},
				{0x1010, 0x1020, []Step{{CFA: 8}, {Offset: 9, CFA: 16}}},
			}, 127},
		{"lld -z retpolineplt", amd64(), retpoline,
			[]Stub{
				{0x1000, 0x1020, []Step{{CFA: 16}, {Offset: 6, CFA: 24}}}, {0x1020, 0x1024, one},
				{0x1030, 0x1050, []Step{{CFA: 8}, {Offset: 0x16, CFA: 16}}},
			}, 199},
		{"lld -z retpolineplt,-z,now", amd64(), retpolineNow,
			[]Stub{{0x1000, 0x1010, one}, {0x1010, 0x1014, one}, {0x1020, 0x1030, one}}, 72},
		{"a call of other code after a stub", amd64(), "ff25d4230000 6690" +
			strings.Replace(retpolineNow, "e80b000000", "e80c000000", 1), nil, 0},
		{"a call to another address", amd64(), strings.Replace(retpolineNow, "e80b000000", "e80b000001", 1), nil, 0},
		{"a call of code before it", amd64(), strings.Replace(retpolineNow, "e80b000000", "e8faffffff", 1), nil, 0},
		{"a thunk that does not return", amd64(),
			strings.Replace(retpolineNow, "4c891c24 c3", "4c891c24 cc", 1), nil, 0},
		{"a thunk before its caller", amd64(),
			"4c891c24 c3 cccccccccccccccccccccc" + "e8ebffffff f390 0faee8 ebf9 cccccccc",
			[]Stub{{0x1000, 0x1004, one}, {0x1010, 0x1020, one}}, 8},
		{"a PLT header without entries", amd64(), "ff354a220000 ff254c220000 0f1f4000", nil, 0},
		{".plt.sec", amd64(), "f30f1efa ff2546220000 660f1f440000" + "f30f1efa f2ff253d220000 0f1f440000",
			[]Stub{{0x1000, 0x1010, one}, {0x1010, 0x1020, one}}, 64},
		{"mold", amd64(), "f30f1efa 4153 ff35e4230000 ff25e6230000 cccccccccccccccccccccccccccc" +
			"41bb00000000 ff25d4230000 cccccccc" + "f30f1efa 41bb01000000 ff25d0230000",
			[]Stub{
				{0x1000, 0x1020, []Step{{CFA: 8}, {Offset: 6, CFA: 16}, {Offset: 12, CFA: 24}}},
				{0x1020, 0x1030, one}, {0x1030, 0x1040, one},
			}, 192},
		{".plt.got", amd64(), "ff25d4230000 6690" + "f30f1efa ff25d0230000 cccccccccccc",
			[]Stub{{0x1000, 0x1008, one}, {0x1008, 0x1018, one}}, 64},
		{"other code between two stubs", amd64(),
			"ff25d4230000 6690" + "4883ec084883c408" + "ff25d4230000 6690", nil, 0},
		{"a truncated stub", amd64(), "ff25d4230000 6690 ff25d423", nil, 0},
		{"aarch64", aarch64(), "f07bbfa9 100000f0 11fe47f9 10e23f91 20021fd6 1f2003d5 1f2003d5 1f2003d5" +
			"10010090 110240f9 1f2003d5 20021fd6" + "10010090 110640f9 10220091 20021fd6",
			[]Stub{
				{0x1000, 0x1020, []Step{{}, {Offset: 4, CFA: 16, RA: -8}}},
				{0x1020, 0x1030, []Step{{}}}, {0x1030, 0x1040, []Step{{}}},
			}, 123},
		{"aarch64, traps as padding", aarch64(),
			"10010090 110240f9 20021fd6 200020d4 e0ff3fd4" + "10010090 110640f9 10220091 20021fd6",
			[]Stub{{0x1000, 0x1014, []Step{{}}}, {0x1014, 0x1024, []Step{{}}}}, 110},
		{"aarch64, BTI and PAC", aarch64(), "5f2403d5 f07bbfa9 100000f0 11fe47f9 10e23f91 20021fd6 1f2003d5 1f2003d5" +
			"5f2403d5 10010090 110240f9 10020091 9f2103d5 20021fd6",
			[]Stub{
				{0x1000, 0x1020, []Step{{}, {Offset: 8, CFA: 16, RA: -8}}},
				{0x1020, 0x1038, []Step{{}}},
			}, 90},
		{"aarch64, TLS descriptors", aarch64(),
			"e20fbfa9 02010090 03010090 420040f9 63000091 40001fd6 1f2003d5 1f2003d5",
			[]Stub{{0x1000, 0x1020, []Step{{}, {Offset: 4, CFA: 16}}}}, 68},
		{"s390x, lld", s390x(), "e310f0380024 c01000000965 d207f0301008 e31010100004 07f1 0700 0700 0700" +
			"c01000001180 e31010000004 07f1 0d10 e310100c0014 c0f4ffffffe5 00000000",
			[]Stub{{0x1000, 0x1020, []Step{{CFA: 160}}}, {0x1020, 0x1040, []Step{{CFA: 160}}}}, 130},
	} {
		code := must.Get(hex.DecodeString(strings.ReplaceAll(tt.code, " ", "")))(t)
		got := stubs(tt.m, code, addr, &cfi.Table{})
		if !slices.EqualFunc(got, tt.want, same) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
		// Stubs with CFI are skipped.
		described := generate.Described(t, generate.Range{Begin: addr, End: addr + uint64(len(code))})
		if got := stubs(tt.m, code, addr, described); len(got) > 0 {
			t.Errorf("%s: %+v although CFI describes it", tt.name, got)
		}
		// Stubs that unknown code may fall into are not found.
		unknown, _ := hex.DecodeString(map[uint64]string{8: "500f1f4000666690", 4: "ff4300d1"}[tt.m.align])
		if got := stubs(tt.m, slices.Concat(unknown, code), addr, &cfi.Table{}); len(got) > 0 {
			t.Errorf("%s: %+v after other code", tt.name, got)
		}
		// A stub is found only if the changed bit is part of an operand.
		operands := 0
		for _, s := range tt.want {
			for bit := range 8 * (s.End - s.Begin) {
				broken := slices.Clone(code)
				broken[s.Begin-addr+bit/8] ^= 1 << (bit % 8)
				got := stubs(tt.m, broken, addr, &cfi.Table{})
				if slices.ContainsFunc(got, func(b Stub) bool { return same(b, s) }) {
					operands++
				}
			}
		}
		if operands != tt.operands {
			t.Errorf("%s: %d bits are part of operands; want %d", tt.name, operands, tt.operands)
		}
	}
}

func same(a, b Stub) bool {
	return a.Begin == b.Begin && a.End == b.End && slices.Equal(a.Steps, b.Steps)
}

// TestIsSection checks the names of linkers' PLT sections.
func TestIsSection(t *testing.T) {
	for name, want := range map[string]bool{
		".plt": true, ".plt.got": true, ".plt.sec": true, ".iplt": true, ".text": false, ".plt.x": false,
	} {
		if got := IsSection(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBoundaries checks code that is a stub only if no other code falls into it, or jumps to it with a different stack
// depth.
func TestBoundaries(t *testing.T) {
	const addr = 0x1000
	const jump = "ff25d4230000 6690 " // jmp *x(%rip); xchg %ax,%ax
	one := []Step{{CFA: 8}}
	for _, tt := range []struct {
		name      string
		m         *stubForms
		code      string
		described []generate.Range
		want      []Stub
	}{
		{"after a push", amd64(), "50 0f1f4000 666690 " + jump, nil, nil},
		{"after a push and a stub", amd64(), jump + "50 0f1f4000 666690 " + jump, nil, nil},
		{"before a push", amd64(), jump + "50 0f1f4000 666690", nil, nil},
		{"after padding that is executed", amd64(), "0f1f4000 0f1f4000 " + jump, nil, nil},
		{"after a function that ends in a jump, and padding", amd64(), jump + "0f1f4000 0f1f4000" + jump,
			[]generate.Range{{Begin: 0x1000, End: 0x1008}}, []Stub{{0x1010, 0x1018, one}}},
		{"misaligned", amd64(), jump + "0f1f4000 " + jump + "0f1f4000", []generate.Range{{Begin: 0x1000, End: 0x1008}},
			nil},
		{"after a function that ends in a jump", amd64(), jump + jump, []generate.Range{{Begin: 0x1000, End: 0x1008}},
			[]Stub{{0x1008, 0x1010, one}}},
		{"after a function that falls through", amd64(), "41530f1f440000 90 " + jump,
			[]generate.Range{{Begin: 0x1000, End: 0x1008}}, nil},
		{"after a function that is padding", amd64(), "0f1f4000 0f1f4000 " + jump,
			[]generate.Range{{Begin: 0x1000, End: 0x1008}}, nil},
		{"after a function with unknown instructions", amd64(), "50 5890 c3 90909090" + jump,
			[]generate.Range{{Begin: 0x1000, End: 0x1008}}, nil},
		{"after a function that calls", amd64(), "e800000000 ff25d4230000 0f1f440000" + jump,
			[]generate.Range{{Begin: 0x1000, End: 0x1010}}, nil},
		{"after a function before the section", amd64(), jump, []generate.Range{{Begin: 0xff0, End: 0x1000}},
			[]Stub{{0x1000, 0x1008, one}}},
		{"after other code and a function that ends in a jump", amd64(), "50 0f1f4000 666690 " + jump + jump,
			[]generate.Range{{Begin: 0x1008, End: 0x1010}}, nil},
		{"overlapping a function", amd64(), jump, []generate.Range{{Begin: 0x1004, End: 0x1008}}, nil},
		{"jumped to after a push", amd64(), // the second stub's entry jumps to the first stub
			jump + "0f1f4000 0f1f4000 " + "ff25d4230000 6800000000 e9e0ffffff", nil,
			[]Stub{{0x1010, 0x1020, []Step{{CFA: 8}, {Offset: 11, CFA: 16}}}}},
		{"jumped to by a function after a push", amd64(), jump + "6800000000 e9eeffffff" + "0f1f4000 6690",
			[]generate.Range{{Begin: 0x1008, End: 0x1018}}, nil},
		{"jumped to by a function without a push", amd64(), jump + "6800000000 ff2500000000 e9e8ffffff",
			[]generate.Range{{Begin: 0x1008, End: 0x1018}}, []Stub{{0x1000, 0x1008, one}}},
		{"jumped into", amd64(), // after a push, the second stub jumps past the endbr64 of the first
			"f30f1efa ff25d4230000 0f1f440000 90 " + "ff25d4230000 6800000000 e9e4ffffff", nil,
			[]Stub{{0x1010, 0x1020, []Step{{CFA: 8}, {Offset: 11, CFA: 16}}}}},
		{"jumped into at the same stack depth", amd64(), // the last jump of the first stub jumps to itself
			"ff25d4230000 6800000000 e9fbffffff" + jump, nil,
			[]Stub{{0x1000, 0x1010, []Step{{CFA: 8}, {Offset: 11, CFA: 16}}}, {0x1010, 0x1018, one}}},
		{"after sub sp,sp,#16, aarch64", aarch64(), "ff4300d1 1f2003d5 10010090 110240f9 10020091 20021fd6", nil, nil},
		{"after nop, aarch64", aarch64(), "1f2003d5 1f2003d5 10010090 110240f9 10020091 20021fd6", nil, nil},
		{"after br, aarch64", aarch64(), "10010090 110240f9 20021fd6 1f2003d5 10010090 110240f9 10020091 20021fd6",
			nil, []Stub{{0x1000, 0x1010, []Step{{}}}, {0x1010, 0x1020, []Step{{}}}}},
		{"after lay %r15,-16(%r15), s390x", s390x(), "e3f0fff0ff71 0700 c01000001180 e31010000004 07f1 0000", nil, nil},
		{"after nopr, s390x", s390x(), "0700 0700 c01000001180 e31010000004 07f1 0000", nil, nil},
		{"after br, s390x", s390x(), "c01000001180 e31010000004 07f1 0000 c01000001180 e31010000004 07f1 0000", nil,
			[]Stub{{0x1000, 0x1010, []Step{{CFA: 160}}}, {0x1010, 0x1020, []Step{{CFA: 160}}}}},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := stubs(tt.m, code, addr, generate.Described(t, tt.described...))
		if !slices.EqualFunc(got, tt.want, same) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}
