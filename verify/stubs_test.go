package verify

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// followed describes what a follower finds in PLT code: the stubs, what is wrong with each, and how many bytes are
// pushed before it.
func followed(p platform, plts ...plt) (words []string) {
	w := follow(plts, abis[p.abi].stub)
	for i := 0; i < len(w.code); {
		in := w.code[i]
		for ; i < len(w.code) && w.code[i].stub == in.stub || i < len(w.code) && in.gap && !in.reached &&
			w.code[i].gap && !w.code[i].reached && w.code[i].begin == in.end; i++ {
			in.end = w.code[i].end
		}
		word := fmt.Sprintf("%#x-%#x", in.begin, in.end)
		switch {
		case in.wrong != "":
			word += " " + in.wrong
		case in.gap && !in.reached:
			word += " padding"
		case !in.reached:
			word += " not reached"
		case in.at.pushed != 0:
			word += fmt.Sprintf(" after %d", in.at.pushed)
		}
		words = append(words, word)
	}
	return words
}

// PLTs of lld -z retpolineplt (lld 14 and 23). The start and the entries call the thunk at 0x1020 or 0x1010. The loop
// after the call catches speculative execution.
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

// TestFollower tracks the control flow in PLTs at 0x1000.
func TestFollower(t *testing.T) {
	const (
		slots = "ff2500000000" // jmp *x(%rip)
	)
	for _, tt := range []struct {
		name string
		p    platform
		code string
		want []string
	}{
		{"GNU ld, amd64", amd64,
			"ff3500000000 ff2500000000 0f1f4000" + // push x(%rip); jmp *x(%rip); nopl 0(%rax)
				"ff2500000000 6800000000 e9e0ffffff" + // jmp *x(%rip); push $0; jmp 0x1000
				"ff2500000000 6801000000 e9d0ffffff",
			[]string{"0x1000-0x100c after 8", "0x100c-0x1010 padding", "0x1010-0x1016", "0x1016-0x1020",
				"0x1020-0x1026", "0x1026-0x1030"}},
		{"lld -z retpolineplt", amd64, retpoline,
			[]string{"0x1000-0x1019 after 8", "0x1019-0x1020 padding", "0x1020-0x1025", "0x1025-0x1030 padding",
				"0x1030-0x1041", "0x1041-0x104b", "0x104b-0x1050 padding"}},
		{"the same with -z now", amd64, retpolineNow,
			[]string{"0x1000-0x100c", "0x100c-0x1010 padding", "0x1010-0x1015", "0x1015-0x1020 padding",
				"0x1020-0x102c", "0x102c-0x1030 padding"}},
		{"a call that returns", amd64, strings.Replace(retpolineNow, "4c891c24", "4c8b1c24", 1),
			[]string{"0x1000-0x100c at 0x1000, it calls code that may return", "0x100c-0x1010 padding",
				"0x1010-0x1030 the instruction at 0x1010 is not part of a PLT stub"}},
		{"a call that does not reach the return", amd64, strings.Replace(retpolineNow, "4c891c24 c3", "4c891c24 90", 1),
			[]string{"0x1000-0x100c at 0x1000, it calls code that may return", "0x100c-0x1010 padding",
				"0x1010-0x1016 the return address is overwritten before 0x1015", "0x1016-0x1020 padding",
				"0x1020-0x102c", "0x102c-0x1030 padding"}},
		{"a call to other code", amd64, "e800100000" + slots,
			[]string{"0x1000-0x100b at 0x1000, it calls code that may return"}},
		{"a call to the last instruction", amd64, "e806000000" + slots + "4c891c24",
			[]string{"0x1000-0x100b at 0x1000, it calls code that may return",
				"0x100b-0x100f it does not end in a jump"}},
		{"a return address that is not on top", amd64, "6a01" + "4c891c24 c3",
			[]string{"0x1000-0x1007 the return address is overwritten before 0x1006"}},
		{"a jump after the return address is overwritten", amd64, "4c891c24" + slots,
			[]string{"0x1000-0x100a the return address is overwritten before 0x100a"}},
		{"a return", amd64, slots + "c3", []string{"0x1000-0x1006", "0x1006-0x1007 it returns at 0x1006"}},
		{"a jump into an instruction, amd64", amd64,
			"f30f1efa 41bb05000000 eb04 66906690" + // endbr64; mov $5,%r11d; jmp 0x1010; xchg %ax,%ax twice
				"f30f1efa 68 00000000 e9e7ffffff", // endbr64; push $0; jmp 0x1005, inside the mov
			[]string{"0x1000-0x100c a stub jumps into an instruction, to 0x1005", "0x100c-0x1010 padding",
				"0x1010-0x101e"}},
		{"lld, aarch64", aarch64,
			// stp x16,x30,[sp,#-16]!; adrp; ldr; add; br x17; 3 nops
			"f07bbfa9 10000090 110640f9 10220091 20021fd6 1f2003d5 1f2003d5 1f2003d5" +
				"10000090 110640f9 10220091 20021fd6",
			[]string{"0x1000-0x1014", "0x1014-0x1020 padding", "0x1020-0x1030"}},
		{"GNU ld, s390x", s390x,
			// stg; larl; mvc; lg; br %r1; 3 noprs
			"e310f0380024 c01000000000 d207f0301008 e31010100004 07f1 0700 0700 0700" +
				// larl; lg; br %r1; basr; lgf; jg 0x1000; .long
				"c01000000000 e31010000004 07f1 0d10 e310100c0014 c0f4ffffffe5 00000018",
			[]string{"0x1000-0x101a", "0x101a-0x1020 padding", "0x1020-0x102e", "0x102e-0x1040"}},
		// larl; br %r1; jg 0x1002
		{"jg into an instruction, s390x", s390x, "c01000000000 07f1 c0f4fffffffd 00000018",
			[]string{"0x1000-0x1008 a stub jumps into an instruction, to 0x1002", "0x1008-0x1012"}},

		{"padding at the start is executed", amd64, "6690" + slots, []string{"0x1000-0x1008"}},
		{"traps are not reached", amd64, slots + "cccc" + slots,
			[]string{"0x1000-0x1006", "0x1006-0x1008 padding", "0x1008-0x100e"}},
		{"a trap at the start ends a stub", amd64, "cc" + slots, []string{"0x1000-0x1001", "0x1001-0x1007"}},
		{"no jump", amd64, slots + "6a01", []string{"0x1000-0x1006", "0x1006-0x1008 it does not end in a jump"}},
		{"an instruction that stubs do not contain", amd64, slots + "4883ec08" + slots,
			[]string{"0x1000-0x1006", "0x1006-0x1010 the instruction at 0x1006 is not part of a PLT stub"}},

		// jmp *x(%rip) at 0x1008, which 0x1000 and 0x100e jump to with 8 and 0 bytes pushed.
		{"different depths", amd64, "6a01 eb04 90909090" + slots + "ebf8",
			[]string{"0x1000-0x1004", "0x1004-0x1008 padding",
				"0x1008-0x100e stubs reach it with different stack contents", "0x100e-0x1010"}},
		{"the same depth", amd64, "6a01 eb04 90909090" + slots + "6a02ebf6",
			[]string{"0x1000-0x1004", "0x1004-0x1008 padding", "0x1008-0x100e after 8", "0x100e-0x1012"}},
		{"a jump to padding", amd64, "6a01 eb02 90909090" + slots,
			[]string{"0x1000-0x1004", "0x1004-0x1006 padding", "0x1006-0x1007 after 8", "0x1007-0x1008 after 8",
				"0x1008-0x100e stubs reach it with different stack contents"}},
		// push $1; jmp *x(%rip). The other stub jumps to the jmp with the same number of bytes pushed.
		{"a jump to the same depth", amd64, "6a01" + slots + "6a02ebf6",
			[]string{"0x1000-0x1008", "0x1008-0x100c"}},
		{"a jump to a smaller depth", amd64, "6690" + slots + "6a02ebf6",
			[]string{"0x1000-0x1008 stubs reach it with different stack contents", "0x1008-0x100c"}},
		{"a jump to a larger depth", amd64, "6a01" + slots + "ebf8",
			[]string{"0x1000-0x1008 stubs reach it with different stack contents", "0x1008-0x100a"}},
		// 0x1008 and 0x100e jump to 0x1002, with 16 and 8 bytes pushed, respectively. Only 8 is correct.
		{"jumps at the same and a larger depth", amd64, "6a01" + slots + "6a026a03ebf4" + "6a02ebf0",
			[]string{"0x1000-0x1008 stubs reach it with different stack contents", "0x1008-0x100e", "0x100e-0x1012"}},
		// 0x100a jumps to 0x1000 with 8 bytes pushed, so 16 are pushed at 0x1002; 0x100e arrives there with 16.
		{"jumps to both", amd64, "6a01" + slots + "6690 6a02 ebf2 6a02 6a03 ebee",
			[]string{"0x1000-0x1008 after 8", "0x1008-0x100a padding", "0x100a-0x100e", "0x100e-0x1014"}},
		{"a jump to itself", amd64, "6a01 ebfc", []string{"0x1000-0x1004 not reached"}},
		{"a jump to itself after a call", amd64, "6690 6a01 ebfc",
			[]string{"0x1000-0x1006 stubs reach it with different stack contents"}},
		// push $1; jmp 0x1004; push $2; jmp 0x1008; jmp *x(%rip): 16 bytes are pushed before the last jmp.
		{"a jump after a jump", amd64, "6a01 eb00 6a02 eb00" + slots,
			[]string{"0x1000-0x1004", "0x1004-0x1008 after 8", "0x1008-0x100e after 16"}},
		// 0x1000 jumps to 0x1006 with 8 bytes pushed, 0x1004 with none; 0x1006 jumps to 0x1008.
		{"a jump after different depths", amd64, "6a01 eb02 eb00 eb00" + slots,
			[]string{"0x1000-0x1004", "0x1004-0x1006", "0x1006-0x1008 stubs reach it with different stack contents",
				"0x1008-0x100e stubs reach it with different stack contents"}},
		// 0x100e pushes 8 bytes, and jumps back to 0x100a, which jumps to 0x1006, which jumps to 0x1000.
		{"a jump after jumps", amd64, slots + "ebf8 6690 ebfa 6690 6a03 ebf8",
			[]string{"0x1000-0x1006 after 8", "0x1006-0x1008 after 8", "0x1008-0x100a padding",
				"0x100a-0x100c after 8", "0x100c-0x100e padding", "0x100e-0x1012"}},
		// push $1; jmp 0x1000, in a second PLT
		{"a jump to another PLT", amd64, slots + " / 6a01 ebf6", []string{"0x1000-0x1006 after 8", "0x1006-0x100a"}},
		// 0x1000 jumps to 0x1006 with 8 bytes pushed, 0x1004 with none. The second PLT begins at 0x1006, and jumps to
		// 0x1008.
		{"a jump to another PLT after different depths", amd64, "6a01 eb02 eb00 / eb00" + slots,
			[]string{"0x1000-0x1004", "0x1004-0x1006", "0x1006-0x1008 stubs reach it with different stack contents",
				"0x1008-0x100e stubs reach it with different stack contents"}},
	} {
		var plts []plt
		begin := uint64(0x1000)
		for part := range strings.SplitSeq(tt.code, "/") {
			code := bytesOf(t, part)
			plts = append(plts, plt{begin, begin + uint64(len(code)), code})
			begin += uint64(len(code))
		}
		if got := followed(tt.p, plts...); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

// TestDepths checks how many bytes stubs have pushed before each instruction, and where the return address is.
func TestDepths(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    platform
		code string
		want []depth
	}{
		{"amd64", amd64, "6a01 ff3500000000 6690 ffe0", []depth{{}, {pushed: 8}, {pushed: 16}, {pushed: 16}}},
		{"aarch64", aarch64, "10000090 f07bbfa9 10220091 20021fd6",
			[]depth{{}, {}, {pushed: 16, ra: 8}, {pushed: 16, ra: 8}}},
		// stp x2,x3; stp x16,x30; br x17, as lld emits for lazy TLS descriptors.
		{"aarch64, twice", aarch64, "e20fbfa9 f07bbfa9 20021fd6", []depth{{}, {pushed: 16}, {pushed: 32, ra: 24}}},
		{"aarch64, in reverse order", aarch64, "f07bbfa9 e20fbfa9 20021fd6",
			[]depth{{}, {pushed: 16, ra: 8}, {pushed: 32, ra: 8}}},
		// mov %r11,(%rsp); ret
		{"amd64, overwritten return address", amd64, "4c891c24 c3", []depth{{}, {lost: true}}},
		{"s390x", s390x, "e310f0380024 07f1", []depth{{}, {}}},
	} {
		code := bytesOf(t, tt.code)
		w := follow([]plt{{0x1000, 0x1000 + uint64(len(code)), code}}, abis[tt.p.abi].stub)
		var got []depth
		for _, in := range w.code {
			got = append(got, in.at)
		}
		if w.code[0].wrong != "" || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, wrong: %q, want %+v", tt.name, got, w.code[0].wrong, tt.want)
		}
	}
}

// TestFindPLTs finds sections of PLT stubs by name, if they are loaded code.
func TestFindPLTs(t *testing.T) {
	t.Parallel()
	code := bytes.Repeat([]byte{0xcc}, 16)
	find := func(regions ...region) (found []uint64) {
		t.Helper()
		plts := must.Get(findPLTs(fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order, regions...)))(t)
		for _, p := range plts {
			if len(p.code) != int(p.end-p.begin) || len(bytes.Trim(p.code, "\xcc")) > 0 {
				t.Errorf("%#x-%#x: code % x", p.begin, p.end, p.code)
			}
			found = append(found, p.begin)
		}
		return found
	}
	for _, tt := range []struct {
		name    string
		regions []region
		want    []uint64
	}{
		{"all names, by address", []region{
			{name: ".iplt", addr: 0x4000, code: code}, {name: ".plt.sec", addr: 0x3000, code: code},
			{name: ".plt.got", addr: 0x2000, code: code}, {name: ".plt", addr: 0x1000, code: code},
		}, []uint64{0x1000, 0x2000, 0x3000, 0x4000}},
		{"other names", []region{{name: ".text", addr: 0x1000, code: code}, {name: ".plt.x", addr: 0x2000, code: code}},
			nil},
		{"data", []region{{name: ".plt", addr: 0x1000, code: code, flags: elf.SHF_ALLOC | elf.SHF_WRITE}}, nil},
		{"not in the file", []region{{name: ".plt", addr: 0x1000, code: code, typ: elf.SHT_NOBITS}}, nil},
		{"empty", []region{{name: ".plt", addr: 0x1000}}, nil},
		{"not loaded", []region{{name: ".plt", addr: 0x1000, code: code, apart: true}}, nil},
		{"loaded from elsewhere", []region{{name: ".text", addr: 0x1000, code: code},
			{name: ".plt", addr: 0x1000, code: code, apart: true}}, nil},
		{"overlapping", []region{{name: ".plt", addr: 0x1008, code: code}, {name: ".iplt", addr: 0x1000, code: code},
			{name: ".plt.got", addr: 0x1017, code: code}}, []uint64{0x1008}},
		{"adjacent", []region{{name: ".plt", addr: 0x1010, code: code}, {name: ".iplt", addr: 0x1000, code: code},
			{name: ".plt.got", addr: 0x1020, code: code}}, []uint64{0x1000, 0x1010, 0x1020}},
		{"too large", []region{{name: ".plt", addr: 0x1000, code: bytes.Repeat([]byte{0xcc}, maxPLT+1)}}, nil},
		{"too large together", []region{{name: ".plt", addr: 0x1000, code: bytes.Repeat([]byte{0xcc}, maxPLT)},
			{name: ".iplt", addr: 0x8000000, code: code}}, []uint64{0x1000}},
	} {
		if got := find(tt.regions...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: PLTs at %#x, want %#x", tt.name, got, tt.want)
		}
	}
	var many []region
	for i := range uint64(maxPLTs + 1) {
		many = append(many, region{name: ".plt", addr: 0x1000 + 0x100*i, code: code})
	}
	if got := find(many...); len(got) != maxPLTs {
		t.Errorf("%d PLTs", len(got))
	}
}

// A broken file cannot be read in the range from..to.
type broken struct {
	io.ReaderAt
	from, to int64
}

var errBroken = errors.New("cannot be read")

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off < b.to && off+int64(len(p)) > b.from {
		return 0, errBroken
	}
	return b.ReaderAt.ReadAt(p, off)
}

// TestUnreadable expects the read error for stubs in an unreadable section.
func TestUnreadable(t *testing.T) {
	b := image(t, elf.ET_DYN, elf.EM_X86_64, amd64.order,
		[]region{{name: ".plt", addr: 0x1000, code: bytesOf(t, "ffe0")}})
	off := int64(bytes.Index(b, bytesOf(t, "ffe0")))
	f := openImage(t, broken{bytes.NewReader(b), off, off + 2}, len(b))
	s := amd64.section(t, sframe.V2, fde{sframe.FDE{Start: 0x1000, Size: 2}, one(sframe.Row{CFA: at(sframe.SP, 8)})})
	if res, err := Check(amd64.cfi(t), s, f, Options{Keep: 10}); !errors.Is(err, errBroken) {
		t.Errorf("%+v, error %v", res, err)
	}
}

// TestStubRows checks correct rows of PLT stubs, and rows with one error each.
func TestStubRows(t *testing.T) {
	sp := func(offset int32) sframe.Row { return sframe.Row{CFA: at(sframe.SP, offset)} }
	saved := sp(16)
	saved.RA = slot(sframe.CFA, -8)
	rows := func(second uint32, r ...sframe.Row) []sframe.FRE {
		if len(r) == 1 {
			return one(r[0])
		}
		return []sframe.FRE{{Row: r[0]}, {Start: second, Row: r[1]}}
	}
	signed, fp := sp(0), sp(8)
	signed.Signed = true
	fp.FP = slot(sframe.CFA, -16)
	x17 := sp(0)
	x17.RA = sframe.Rule{Base: sframe.Register, Reg: 17}
	elsewhere := saved
	elsewhere.RA = slot(sframe.CFA, -16)
	for _, tt := range []struct {
		name  string
		p     platform
		v     sframe.Version
		code  string
		fde   sframe.FDE
		rows  []sframe.FRE
		stubs uint64 // bytes with correct rows
		wrong string // the only mismatch, or ""
	}{
		{"amd64", amd64, sframe.V2, "6a01 ffe0", sframe.FDE{}, rows(2, sp(8), sp(16)), 4, ""},
		{"amd64, jumps to itself", amd64, sframe.V2, "6a01 ebfc", sframe.FDE{}, rows(2, sp(8), sp(16)), 0,
			"0x1000-0x1004: SFrame describes code that CFI does not: it is unreachable"},
		{"amd64, overwritten return address", amd64, sframe.V2, "4c891c24 c3", sframe.FDE{}, rows(0, sp(8)), 4,
			"0x1004-0x1005: PLT stub: SFrame describes code whose return address is overwritten"},
		{"amd64, padding", amd64, sframe.V2, "ffe0 9090", sframe.FDE{}, rows(0, sp(8)), 4, ""},
		{"amd64, CFA", amd64, sframe.V2, "6a01 ffe0", sframe.FDE{}, rows(0, sp(8)), 2,
			"0x1002-0x1004: PLT stub: CFA differs: SFrame has CFA rsp+8"},
		{"amd64, row inside an instruction", amd64, sframe.V2, "6a01 ffe0", sframe.FDE{}, rows(1, sp(8), sp(16)), 3,
			"0x1001-0x1002: PLT stub: CFA differs"},
		{"amd64, FP", amd64, sframe.V2, "ffe0", sframe.FDE{}, rows(0, fp), 0,
			"0x1000-0x1002: PLT stub: caller's frame pointer differs"},
		{"amd64, outermost", amd64, sframe.V2, "ffe0", sframe.FDE{}, rows(0, sframe.Row{Outermost: true}), 0,
			"0x1000-0x1002: PLT stub: "},
		{"amd64, signal", amd64, sframe.V3, "ffe0", sframe.FDE{Signal: true}, rows(0, sp(8)), 0,
			"0x1000-0x1002: PLT stub: "},
		{"amd64, other code", amd64, sframe.V2, "ffe0 5d", sframe.FDE{}, rows(0, sp(8)), 2,
			"0x1002-0x1003: SFrame describes code that CFI does not: the instruction at 0x1002 is not part"},
		{"aarch64", aarch64, sframe.V2, "f07bbfa9 20021fd6", sframe.FDE{}, rows(4, sp(0), saved), 8, ""},
		{"aarch64, still in x30", aarch64, sframe.V2, "f07bbfa9 20021fd6", sframe.FDE{}, rows(4, sp(0), sp(16)), 4,
			"0x1004-0x1008: PLT stub: return address differs"},
		{"aarch64, saved elsewhere", aarch64, sframe.V2, "f07bbfa9 20021fd6", sframe.FDE{}, rows(4, sp(0), elsewhere),
			4, "0x1004-0x1008: PLT stub: return address differs"},
		{"aarch64, in x17", aarch64, sframe.V3, "20021fd6", sframe.FDE{Flexible: true}, rows(0, x17), 0,
			"0x1000-0x1004: PLT stub: return address differs"},
		{"aarch64, key B", aarch64, sframe.V2, "20021fd6", sframe.FDE{KeyB: true}, rows(0, sp(0)), 0,
			"0x1000-0x1004: PLT stub: "},
		{"aarch64, signed", aarch64, sframe.V2, "20021fd6", sframe.FDE{}, rows(0, signed), 0,
			"0x1000-0x1004: PLT stub: "},
		{"s390x", s390x, sframe.V2, "c01000000000 07f1", sframe.FDE{}, rows(0, sp(160)), 8, ""},
		{"s390x, CFA", s390x, sframe.V2, "c01000000000 07f1", sframe.FDE{}, rows(0, sp(168)), 0,
			"PLT stub: CFA differs"},
	} {
		code := bytesOf(t, tt.code)
		f := fileOf(t, elf.ET_DYN, tt.p.machine, tt.p.order, region{name: ".plt", addr: 0x1000, code: code})
		tt.fde.Start, tt.fde.Size = 0x1000, uint32(len(code))
		res, err := Check(tt.p.cfi(t), tt.p.section(t, tt.v, fde{tt.fde, tt.rows}), f, Options{Keep: 10})
		if err != nil || res.PLT != tt.stubs {
			t.Errorf("%s: %+v, error %v; want %d bytes correct", tt.name, res, err, tt.stubs)
			continue
		}
		if tt.wrong == "" && res.Total != 0 || tt.wrong != "" &&
			(res.Total == 0 || !strings.Contains(res.Mismatches[0].String(), tt.wrong)) {
			t.Errorf("%s: mismatches %v, want %q", tt.name, res.Mismatches, tt.wrong)
		}
	}
}

// TestOutside checks rows for code that has no CFI and is partly or completely outside PLTs.
func TestOutside(t *testing.T) {
	const why = "SFrame describes code that CFI does not: it is not in a section of PLT stubs"
	row := one(sframe.Row{CFA: at(sframe.SP, 8)})
	f := fileOf(t, elf.ET_DYN, elf.EM_X86_64, amd64.order,
		region{name: ".init", addr: 0x1000, code: bytesOf(t, strings.Repeat("ffe0", 0x20))},
		region{name: ".plt", addr: 0x1040, code: bytesOf(t, "ffe0ffe0")},
		region{name: ".text", addr: 0x1044, code: bytesOf(t, strings.Repeat("ffe0", 0x20))})
	s := amd64.section(t, sframe.V2,
		fde{sframe.FDE{Start: 0x1000, Size: 0x10}, row}, // two FDEs without a gap are one mismatch
		fde{sframe.FDE{Start: 0x1010, Size: 0x10}, row},
		fde{sframe.FDE{Start: 0x1030, Size: 0x20}, row}, // before the PLT, in it, and after it
		fde{sframe.FDE{Start: 0x1060, Size: 0x10}, row},
	)
	res, err := Check(amd64.cfi(t), s, f, Options{Keep: 10})
	want := []Mismatch{{0x1000, 0x1020, why}, {0x1030, 0x1040, why}, {0x1044, 0x1050, why}, {0x1060, 0x1070, why}}
	if err != nil || !slices.Equal(res.Mismatches, want) || res.PLT != 4 || res.Total != len(want) {
		t.Errorf("%+v, error %v, want %v", res, err, want)
	}
	f.Sections = nil
	const bare = "SFrame describes code that CFI does not: without section headers, it cannot be identified as a PLT"
	res, err = Check(amd64.cfi(t), s, f, Options{Keep: 10})
	want = []Mismatch{{0x1000, 0x1020, bare}, {0x1030, 0x1050, bare}, {0x1060, 0x1070, bare}}
	if err != nil || !slices.Equal(res.Mismatches, want) || res.PLT != 0 {
		t.Errorf("without section headers: %+v, error %v, want %v", res, err, want)
	}
}
