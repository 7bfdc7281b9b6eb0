package translate

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

var (
	none      = cfi.Rule{Rule: cfi.RuleArchitectural}
	undef     = cfi.Rule{Rule: cfi.RuleUndefined}
	sameValue = cfi.Rule{Rule: cfi.RuleSameVal}
)

func offset(n int64) cfi.Rule      { return cfi.Rule{Rule: cfi.RuleOffset, Offset: n} }
func valOffset(n int64) cfi.Rule   { return cfi.Rule{Rule: cfi.RuleValOffset, Offset: n} }
func inRegister(n uint64) cfi.Rule { return cfi.Rule{Rule: cfi.RuleRegister, Reg: n} }
func cfaOf(reg uint64, n int64) cfi.Rule {
	return cfi.Rule{Rule: cfi.RuleCFA, Reg: reg, Offset: n}
}
func computed(code ...byte) cfi.Rule { return cfi.Rule{Rule: cfi.RuleExpression, Expression: code} }
func valComputed(code ...byte) cfi.Rule {
	return cfi.Rule{Rule: cfi.RuleValExpression, Expression: code}
}

// TestForm translates rules of each kind in each version: the result is a row, or a gap with the rule that causes it.
// Register numbers are from the ABIs' DWARF supplements.
func TestForm(t *testing.T) {
	sp := func(n int32) sframe.Rule { return sframe.Rule{Base: sframe.SP, Offset: n} }
	fp := func(n int32) sframe.Rule { return sframe.Rule{Base: sframe.FP, Offset: n} }
	reg := func(r uint16, n int32) sframe.Rule { return sframe.Rule{Base: sframe.Register, Reg: r, Offset: n} }
	slot := func(n int32) sframe.Rule { return sframe.Rule{Base: sframe.CFA, Offset: n, Deref: true} }
	deref := func(r sframe.Rule) sframe.Rule { r.Deref = true; return r }
	row := func(rules ...sframe.Rule) sframe.Row { // CFA, RA, FP
		rules = append(rules, sframe.Rule{}, sframe.Rule{})
		return sframe.Row{CFA: rules[0], RA: rules[1], FP: rules[2]}
	}
	gap := func(r Reason, c Column) Gap { return Gap{Reason: r, Column: c} }
	x86 := func(cfa, ra, fp, sp cfi.Rule) cfi.Rules {
		return cfi.Rules{CFA: cfa, RA: ra, FP: fp, SP: sp, RAReg: 16}
	}
	arm := func(cfa, ra, fp cfi.Rule, sign cfi.Sign) cfi.Rules {
		return cfi.Rules{CFA: cfa, RA: ra, FP: fp, SP: none, RAReg: 30, Sign: sign}
	}
	z := func(cfa, ra, fp, sp cfi.Rule) cfi.Rules {
		return cfi.Rules{CFA: cfa, RA: ra, FP: fp, SP: sp, RAReg: 14}
	}
	signed := row(sp(16))
	signed.Signed = true
	outermost := sframe.Row{Outermost: true}
	both := func(r sframe.Row) [2]any { return [2]any{r, r} }
	never := func(r Reason, c Column) [2]any { return [2]any{gap(r, c), gap(r, c)} }
	for _, tt := range []struct {
		name    string
		machine elf.Machine
		rules   cfi.Rules
		want    [2]any // in V2 and V3: row or gap
	}{
		{"function entry", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), none, none), both(row(sp(8)))},
		{"with a frame pointer", elf.EM_X86_64, x86(cfaOf(6, 16), offset(-8), offset(-16), none),
			both(row(fp(16), sframe.Rule{}, slot(-16)))},
		{"frame pointer saved at the CFA less a constant, computed", elf.EM_X86_64,
			x86(cfaOf(6, 16), offset(-8), computed(0x40, 0x1c), none), both(row(fp(16), sframe.Rule{}, slot(-16)))},
		{"frame pointer and return address saved at the CFA less a constant, by the CFA's register", elf.EM_X86_64,
			x86(cfaOf(6, 16), computed(0x76, 8), computed(0x76, 0), none),
			both(row(fp(16), sframe.Rule{}, slot(-16)))},
		{"frame pointer unchanged", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), sameValue, none), both(row(sp(8)))},
		{"frame pointer unchanged, computed", elf.EM_X86_64, x86(cfaOf(6, 16), offset(-8), valComputed(0x76, 0), none),
			both(row(fp(16)))},
		{"SP said to be the CFA", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), none, valOffset(0)), both(row(sp(8)))},
		{"on r10", elf.EM_X86_64, x86(cfaOf(10, 0), offset(-8), none, none),
			[2]any{gap(CFARegister, ColumnCFA), row(reg(10, 0))}},
		{"on the last register of 16 bits", elf.EM_X86_64, x86(cfaOf(1<<16-1, 0), offset(-8), none, none),
			[2]any{gap(CFARegister, ColumnCFA), row(reg(1<<16-1, 0))}},
		{"on a register over 16 bits", elf.EM_X86_64, x86(cfaOf(1<<16, 0), offset(-8), none, none),
			never(CFARegister, ColumnCFA)},
		// *(rbp-8), *(rbp)
		{"DRAP", elf.EM_X86_64, x86(computed(0x76, 0x78, 0x06), offset(-8), computed(0x76, 0), none),
			[2]any{gap(DRAP, ColumnCFA), row(deref(fp(-8)), sframe.Rule{}, deref(fp(0)))}},
		{"loaded, and SP with the same rule", elf.EM_X86_64,
			x86(computed(0x76, 0x78, 0x06), offset(-8), none, valComputed(0x76, 0x78, 0x06)),
			[2]any{gap(DRAP, ColumnCFA), row(deref(fp(-8)))}},
		{"loaded by SP", elf.EM_X86_64, x86(computed(0x77, 8, 0x06), offset(-8), none, none),
			[2]any{gap(CFAExpression, ColumnCFA), row(deref(sp(8)))}},
		{"loaded twice", elf.EM_X86_64, x86(computed(0x77, 8, 0x06, 0x06), offset(-8), none, none),
			never(CFAExpression, ColumnCFA)},
		{"a register plus a constant, computed", elf.EM_X86_64, x86(computed(0x77, 8), offset(-8), none, none),
			both(row(sp(8)))},
		{"no CFA", elf.EM_X86_64, x86(undef, offset(-8), none, none), never(CFAMissing, ColumnCFA)},
		{"CFA offset of 32 bits and one", elf.EM_X86_64, x86(cfaOf(7, 1<<31), offset(-8), none, none),
			never(OffsetRange, ColumnCFA)},
		{"no caller", elf.EM_X86_64, x86(cfaOf(7, 8), undef, none, none), [2]any{gap(Outermost, ColumnRA), outermost}},
		{"return address in rdi", elf.EM_X86_64, x86(cfaOf(7, 8), inRegister(5), none, none),
			[2]any{gap(RARegister, ColumnRA), row(sp(8), reg(5, 0))}},
		{"return address at CFA-16", elf.EM_X86_64, x86(cfaOf(7, 16), offset(-16), none, none),
			[2]any{gap(RAOffset, ColumnRA), row(sp(16), slot(-16))}},
		{"return address CFA-16, not loaded", elf.EM_X86_64, x86(cfaOf(7, 16), valOffset(-16), none, none),
			[2]any{gap(RARule, ColumnRA), row(sp(16), sp(0))}},
		{"return address rdi+8", elf.EM_X86_64, x86(cfaOf(7, 16), valComputed(0x75, 8), none, none),
			[2]any{gap(RARule, ColumnRA), row(sp(16), reg(5, 8))}},
		{"return address 4 GiB from its slot", elf.EM_X86_64, x86(cfaOf(7, 16), offset(-8-1<<32), none, none),
			never(OffsetRange, ColumnRA)},
		{"return address in a register over 16 bits", elf.EM_X86_64, x86(cfaOf(7, 8), inRegister(1<<16), none, none),
			never(RARegister, ColumnRA)},
		{"return address in a register over 16 bits, plus 1", elf.EM_X86_64,
			x86(cfaOf(7, 8), valComputed(0x92, 0x80, 0x80, 4, 1), none, none), never(RARule, ColumnRA)},
		{"return address loaded by a register over 16 bits", elf.EM_X86_64,
			x86(cfaOf(7, 8), computed(0x92, 0x80, 0x80, 4, 0), none, none), never(RARule, ColumnRA)},
		{"return address said to stay in rdi", elf.EM_X86_64, cfi.Rules{CFA: cfaOf(7, 8), RA: none, FP: none, SP: none,
			RAReg: 5}, never(RARule, ColumnRA)},
		{"return address without a rule", elf.EM_X86_64, x86(cfaOf(7, 8), none, none, none), never(RARule, ColumnRA)},
		{"return address loaded twice", elf.EM_X86_64, x86(cfaOf(7, 8), computed(0x77, 0, 0x06), none, none),
			never(RARule, ColumnRA)},
		{"frame pointer in rbx", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), inRegister(3), none),
			[2]any{gap(FPRegister, ColumnFP), row(sp(8), sframe.Rule{}, reg(3, 0))}},
		{"frame pointer in a register over 16 bits", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), inRegister(1<<16),
			none), never(FPRegister, ColumnFP)},
		{"frame pointer in a register over 16 bits, plus 1", elf.EM_X86_64,
			x86(cfaOf(7, 8), offset(-8), valComputed(0x92, 0x80, 0x80, 4, 1), none), never(FPRule, ColumnFP)},
		{"frame pointer CFA+8, and the CFA almost 32 bits", elf.EM_X86_64,
			x86(cfaOf(7, 1<<31-1), offset(-8), valOffset(8), none), never(FPRule, ColumnFP)},
		{"frame pointer lost", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), undef, none), never(FPUndefined, ColumnFP)},
		{"frame pointer CFA-24, not loaded", elf.EM_X86_64, x86(cfaOf(7, 16), offset(-8), valOffset(-24), none),
			[2]any{gap(FPRule, ColumnFP), row(sp(16), sframe.Rule{}, sp(-8))}},
		{"frame pointer equal to the CFA's register", elf.EM_X86_64,
			x86(cfaOf(7, 16), offset(-8), valComputed(0x77, 24), none),
			[2]any{gap(FPRule, ColumnFP), row(sp(16), sframe.Rule{}, sp(24))}},
		{"frame pointer loaded twice", elf.EM_X86_64, x86(cfaOf(7, 16), offset(-8), computed(0x77, 24, 0x06), none),
			never(FPRule, ColumnFP)},
		{"SP in r8", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), none, inRegister(8)), never(SPRule, ColumnSP)},
		{"SP saved", elf.EM_X86_64, x86(cfaOf(7, 8), offset(-8), none, offset(-16)), never(SPRule, ColumnSP)},

		{"function entry, aarch64", elf.EM_AARCH64, arm(cfaOf(31, 0), none, none, cfi.Unsigned), both(row(sp(0)))},
		{"frame record", elf.EM_AARCH64, arm(cfaOf(29, 32), offset(-24), offset(-32), cfi.Unsigned),
			both(row(fp(32), slot(-24), slot(-32)))},
		{"return address only", elf.EM_AARCH64, arm(cfaOf(31, 16), offset(-16), none, cfi.Unsigned),
			both(row(sp(16), slot(-16)))},
		{"frame pointer only, aarch64", elf.EM_AARCH64, arm(cfaOf(31, 16), none, offset(-16), cfi.Unsigned),
			[2]any{gap(FPWithoutRA, ColumnFP), row(sp(16), sframe.Rule{}, slot(-16))}},
		{"signed", elf.EM_AARCH64, arm(cfaOf(31, 16), none, none, cfi.Signed), both(signed)},
		{"signed with the pc", elf.EM_AARCH64, arm(cfaOf(31, 16), none, none, cfi.SignedWithPC),
			never(RASigned, ColumnNone)},
		{"return address at the CFA", elf.EM_AARCH64, arm(cfaOf(31, 16), offset(0), none, cfi.Unsigned),
			[2]any{gap(RAOffset, ColumnRA), row(sp(16), slot(0))}},
		{"return address in x17", elf.EM_AARCH64, arm(cfaOf(31, 0), inRegister(17), none, cfi.Unsigned),
			[2]any{gap(RARegister, ColumnRA), row(sp(0), reg(17, 0))}},

		{"function entry, s390x", elf.EM_S390, z(cfaOf(15, 160), none, none, none), both(row(sp(160)))},
		{"saved registers, s390x", elf.EM_S390, z(cfaOf(11, 328), offset(-48), offset(-72), offset(-40)),
			both(row(fp(328), slot(-48), slot(-72)))},
		{"frame pointer only, s390x", elf.EM_S390, z(cfaOf(15, 320), none, offset(-72), none),
			both(row(sp(320), sframe.Rule{}, slot(-72)))},
		{"frame pointer at an odd offset, which V2 reserves for registers, s390x", elf.EM_S390,
			z(cfaOf(15, 320), none, offset(-71), none),
			[2]any{gap(FPRule, ColumnFP), row(sp(320), sframe.Rule{}, slot(-71))}},
		{"return address in f0", elf.EM_S390, z(cfaOf(15, 160), inRegister(16), none, none),
			both(row(sp(160), reg(16, 0)))},
		{"CFA 4 from a multiple of 8", elf.EM_S390, z(cfaOf(15, 164), none, none, none), never(OffsetRange, ColumnCFA)},
		{"SP is not CFA-160", elf.EM_S390, z(cfaOf(15, 160), none, none, valOffset(0)), never(SPRule, ColumnSP)},
	} {
		for i, v := range []sframe.Version{sframe.V2, sframe.V3} {
			a := arch.Of(tt.machine)
			abi := a.Little
			if abi == 0 {
				abi = a.Big
			}
			codec := must.Get(sframe.NewCodec(v, abi))(t)
			x := translator{arch: a, codec: codec, layout: codec.Layout(), opt: Options{Version: v}}
			x.row = cfi.Row{Begin: 0x1000, End: 0x1010, Rules: &tt.rules}
			row, g := x.form(x.cfa())
			switch want := tt.want[i].(type) {
			case sframe.Row:
				if g.Reason != 0 || row != want {
					t.Errorf("%s, %v: %+v, gap %v; want %+v", tt.name, v, row, g.Reason, want)
				}
			case Gap:
				rule := map[Column]cfi.Rule{ColumnCFA: tt.rules.CFA, ColumnRA: tt.rules.RA, ColumnFP: tt.rules.FP,
					ColumnSP: tt.rules.SP}[want.Column]
				if g.Reason != want.Reason || g.Column != want.Column || !cfi.SameRule(&g.Rule, &rule) {
					t.Errorf("%s, %v: %+v, gap %q of the %v; want %q of the %v", tt.name, v, row, g.Reason,
						g.Column, want.Reason, want.Column)
				}
			}
		}
	}
}

// TestRuleText checks that rules are printed in the notation of readelf --debug-dump=frames-interp. An expression is
// printed as its value, as DWARF operations if its value is not known, or as bytes if it is truncated or too long.
func TestRuleText(t *testing.T) {
	long := slices.Repeat([]byte{0x96}, maxPrinted)
	for _, tt := range []struct {
		abi    sframe.ABI
		column Column
		rule   cfi.Rule
		want   string
	}{
		{sframe.AMD64Little, ColumnNone, none, ""},
		{sframe.AMD64Little, ColumnRA, undef, "u"},
		{sframe.AMD64Little, ColumnFP, sameValue, "s"},
		{sframe.AMD64Little, ColumnRA, none, "none"},
		{sframe.AMD64Little, ColumnCFA, cfaOf(10, 0), "r10+0"},
		{sframe.AMD64Little, ColumnCFA, cfaOf(7, 8), "rsp+8"},
		{sframe.AMD64Little, ColumnRA, inRegister(5), "rdi"},
		{sframe.AMD64Little, ColumnRA, offset(-16), "c-16"},
		{sframe.AMD64Little, ColumnSP, valOffset(8), "v+8"},
		{sframe.AMD64Little, ColumnCFA, computed(0x76, 0x78, 0x06), "*(rbp-8)"},
		{sframe.AMD64Little, ColumnFP, computed(0x76, 0), "*(rbp+0)"},
		{sframe.AMD64Little, ColumnSP, valComputed(0x23, 8), "c+8"},
		{sframe.AArch64Little, ColumnRA, inRegister(17), "x17"},
		{sframe.AArch64Big, ColumnRA, inRegister(200), "r200"},
		{sframe.S390XBig, ColumnFP, inRegister(16), "f0"},
		{sframe.ABI(99), ColumnFP, inRegister(3), "r3"},
		{sframe.AMD64Little, ColumnCFA, computed(0x77, 8, 0x06, 0x06),
			"exp DW_OP_breg7(rsp) 0x8 DW_OP_deref DW_OP_deref"},
		{sframe.AMD64Little, ColumnCFA, computed(0x40), "exp DW_OP_lit16"},
		{sframe.AMD64Little, ColumnFP, computed(0x22), "exp DW_OP_plus"},
		{sframe.AMD64Little, ColumnFP, valComputed(0x06, 0x06), "exp DW_OP_deref DW_OP_deref"},
		{sframe.AMD64Little, ColumnCFA, computed(0x9e, 0xff, 0xff, 0xff, 0x7f), "exp 9e ff ff ff 7f"},
		{sframe.AMD64Little, ColumnCFA, computed(0x10, 0x80), "exp DW_OP_constu 10 80"},
		{sframe.AMD64Little, ColumnCFA, computed(append(long, 0x06, 0x06)...), "exp " +
			strings.Repeat("96 ", maxPrinted-1) + "96 and 2 more bytes"},
	} {
		if got := (&Gap{Column: tt.column, Rule: tt.rule}).RuleText(tt.abi); got != tt.want {
			t.Errorf("%v: %+v is %q, want %q", tt.abi, tt.rule, got, tt.want)
		}
	}
}

// TestReachOf checks the range of a signed 32-bit distance from the start of the section, or from the start address
// fields of all FDEs. The first FDE is at offset 28; in V2, each is 20 bytes long.
func TestReachOf(t *testing.T) {
	const addr = 1 << 40
	for _, tt := range []struct {
		version sframe.Version
		addr    uint64
		pcrel   bool
		fdes    int
		want    Reach
	}{
		{sframe.V2, addr, false, 1000, Reach{addr - 1<<31, addr + 1<<31 - 1}},
		{sframe.V1, addr, false, 1, Reach{addr - 1<<31, addr + 1<<31 - 1}},
		{sframe.V2, addr, true, 1, Reach{addr + 28 - 1<<31, addr + 28 + 1<<31 - 1}},
		{sframe.V2, addr, true, 11, Reach{addr + 228 - 1<<31, addr + 28 + 1<<31 - 1}},
		{sframe.V2, 0x1000, false, 1, Reach{0, 0x1000 + 1<<31 - 1}},
		{sframe.V2, 1<<64 - 16, false, 1, Reach{1<<64 - 16 - 1<<31, 1<<64 - 1}},
		{sframe.V3, addr, false, 1000, Reach{}},
		{sframe.Version(9), addr, false, 1, Reach{}},
	} {
		if got := ReachOf(tt.version, tt.addr, tt.pcrel, tt.fdes); got != tt.want {
			t.Errorf("%v at %#x, pcrel %t, %d FDEs: %#x, want %#x", tt.version, tt.addr, tt.pcrel, tt.fdes,
				got, tt.want)
		}
	}
}

// TestPieces translates an FDE of .debug_frame whose middle is covered by an FDE of .eh_frame, so its first and last
// parts remain. Both parts count as one function, which is not whole if either part has a gap.
func TestPieces(t *testing.T) {
	const advance = 0x40
	// A CFA based on r10, or a frame pointer saved in rbx, cannot be expressed in V2.
	gap := []byte{0x0c, 10, 8, advance | 8, 0x0c, 7, 8, 0x09, 6, 3}
	sound := []byte{0x0c, 7, 8, 0x08, 6, advance | 8}
	for gaps, want := range [][2]Sum{
		{}, {{1, 1, 8}, {1, 1, 8}}, {{1, 1, 8}, {1, 1, 0x18}}, {{1, 2, 16}, {1, 2, 0x20}},
	} {
		first, last := sound, sound
		if gaps&1 != 0 {
			first = gap
		}
		if gaps&2 != 0 {
			last = gap
		}
		eh, debug := elftest.Frames{}, elftest.Frames{Debug: true}
		eh.FDE(eh.CIE(elftest.Sound...), 0x1010, 0x10)
		cie := debug.CIE(elftest.Sound...)
		debug.FDE(cie, 0x1000, 0x40, slices.Concat(first, []byte{advance | 0x18}, last)...)
		table, err := cfi.Parse(elf.EM_X86_64, binary.LittleEndian, cfi.Section{Source: cfi.EHFrame, Data: eh.B},
			cfi.Section{Source: cfi.DebugFrame, Data: debug.B})
		if err != nil || table.NumErrors > 0 || table.Len() != 3 {
			t.Fatalf("%d functions, errors %v, %v", table.Len(), err, table.Errors)
		}
		covered := 0x40 - want[0].Bytes - want[1].Bytes
		for n := 1; n <= 3; n++ {
			var parts []*Result
			for _, p := range table.Split(n) {
				res := must.Get(Translate(p, Options{Version: sframe.V2}, Discard()))(t)
				parts = append(parts, res)
			}
			res := Merge(parts)
			got := [2]Sum{res.Sums[CFARegister], res.Sums[FPRegister]}
			if res.Functions != 2 || got != want || res.Covered != covered {
				t.Errorf("%d, %d parts: %d functions, %d bytes, gaps %+v; want 2, %d and %+v", gaps, n,
					res.Functions, res.Covered, got, covered, want)
			}
		}
	}
	res := Result{Functions: 3, Sums: map[Reason]Sum{DRAP: {Functions: 2}}}
	for _, reasons := range []reasonSet{1 << DRAP, 0, 1 << DRAP} {
		res.addPart(cfi.FDE{}, reasons)
	}
	if res.Functions != 1 || res.Sums[DRAP].Functions != 1 {
		t.Errorf("three pieces, the middle one without gaps: %+v", res)
	}
}
