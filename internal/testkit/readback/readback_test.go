package readback

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
)

// TestCFI evaluates rules by hand.
func TestCFI(t *testing.T) {
	amd64, _ := New(elf.EM_X86_64, binary.LittleEndian, nil)
	s390x, _ := New(elf.EM_S390, binary.BigEndian, nil)
	expr := func(code ...byte) cfi.Rule { return cfi.Rule{Rule: cfi.RuleExpression, Expression: code} }
	offset := func(n int64) cfi.Rule { return cfi.Rule{Rule: cfi.RuleOffset, Offset: n} }
	cfa := func(reg uint64, n int64) cfi.Rule { return cfi.Rule{Rule: cfi.RuleCFA, Reg: reg, Offset: n} }
	arch := cfi.Rule{Rule: cfi.RuleArchitectural}
	// GNU ld's rule for a PLT: rsp + 8 + ((rip & 15) >= 11) << 3.
	stub := expr(byte(op.DW_OP_breg7), 8, byte(op.DW_OP_breg16), 0, byte(op.DW_OP_lit15), byte(op.DW_OP_and),
		byte(op.DW_OP_lit11), byte(op.DW_OP_ge), byte(op.DW_OP_lit3), byte(op.DW_OP_shl), byte(op.DW_OP_plus))
	deref := expr(byte(op.DW_OP_breg6), 0x78, byte(op.DW_OP_deref)) // *(rbp-8)
	for _, tt := range []struct {
		name  string
		abi   *Reader
		rules cfi.Rules
		pc    uint64
		want  Frame
	}{
		{"entry", amd64, cfi.Rules{CFA: cfa(7, 8), RA: offset(-8), FP: arch, SP: arch, RAReg: 16}, 0,
			Frame{"r7+8", "[r7+0]+0", "r6+0", "r7+8"}},
		{"frame pointer", amd64, cfi.Rules{CFA: cfa(6, 16), RA: offset(-8), FP: offset(-16), SP: arch, RAReg: 16}, 0,
			Frame{"r6+16", "[r6+8]+0", "[r6+0]+0", "r6+16"}},
		{"before the push of a stub", amd64, cfi.Rules{CFA: stub, RA: offset(-8), FP: arch, SP: arch, RAReg: 16},
			0x102a, Frame{"r7+8", "[r7+0]+0", "r6+0", "r7+8"}},
		{"after it", amd64, cfi.Rules{CFA: stub, RA: offset(-8), FP: arch, SP: arch, RAReg: 16}, 0x102b,
			Frame{"r7+16", "[r7+8]+0", "r6+0", "r7+16"}},
		{"realigned", amd64, cfi.Rules{CFA: deref, RA: offset(-8), FP: expr(byte(op.DW_OP_breg6), 0), SP: arch,
			RAReg: 16}, 0, Frame{"[r6-8]+0", "[[r6-8]-8]+0", "[r6+0]+0", "[r6-8]+0"}},
		{"stack pointer", amd64, cfi.Rules{CFA: cfa(7, 8), RA: offset(-8), FP: arch,
			SP: cfi.Rule{Rule: cfi.RuleValOffset, Offset: 64}, RAReg: 16}, 0,
			Frame{"r7+8", "[r7+0]+0", "r6+0", "r7+72"}},
		{"registers", s390x, cfi.Rules{CFA: cfa(15, 160), RA: arch, FP: cfi.Rule{Rule: cfi.RuleRegister, Reg: 17},
			SP: offset(-40), RAReg: 14}, 0, Frame{"r15+160", "r14+0", "r17+0", "r15+0"}},
	} {
		got, err := tt.abi.CFI(&tt.rules, tt.pc)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, error %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	lost := cfi.Rules{CFA: cfa(7, 8), RA: offset(-8), FP: cfi.Rule{Rule: cfi.RuleUndefined}, SP: arch, RAReg: 16}
	if _, err := amd64.CFI(&lost, 0); err == nil {
		t.Error("a frame pointer that is lost has a value")
	}
}
