package linked

import (
	"testing"

	"cfi2sframe/sframe"
)

// TestSameRow compares rows that name SP and FP by their role with rows that name them by their
// DWARF numbers, for each ABI that the format has.
func TestSameRow(t *testing.T) {
	// DWARF register numbers of SP and FP, from the ABIs' supplements.
	numbers := map[sframe.ABI][2]uint16{
		sframe.AMD64Little: {7, 6}, sframe.AArch64Little: {31, 29}, sframe.AArch64Big: {31, 29}, sframe.S390XBig: {15, 11},
	}
	layout, _ := sframe.V3.Layout()
	for _, abi := range layout.ABIs {
		sp, fp := numbers[abi][0], numbers[abi][1]
		a := sframe.FRE{CFA: sframe.Rule{Base: sframe.SP, Offset: 16}, FP: sframe.Rule{Base: sframe.FP, Deref: true}}
		b := sframe.FRE{CFA: sframe.Rule{Base: sframe.Register, Reg: sp, Offset: 16}, FP: sframe.Rule{Base: sframe.Register, Reg: fp, Deref: true}}
		if !SameRow(abi, &a, &b) {
			t.Errorf("%v: %+v and %+v are said to differ", abi, a, b)
		}
		b.CFA.Reg = fp
		if SameRow(abi, &a, &b) {
			t.Errorf("%v: %+v and %+v are said to be the same", abi, a, b)
		}
	}
	if len(layout.ABIs) != len(numbers) {
		t.Errorf("%d ABIs, %d were expected", len(layout.ABIs), len(numbers))
	}
}
