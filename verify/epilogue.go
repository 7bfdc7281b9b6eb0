package verify

import (
	"bytes"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// GCC's CFI for functions that realign their stack claims that the caller's frame pointer is saved where the frame
// pointer points, up to the end of the function. But the epilogue restores the frame pointer before the stack pointer,
// so a section may declare the former unchanged there. The proof uses the instructions that start at that row: they
// restore the stack pointer and leave the function, and none writes the frame pointer. When a function returns, the
// frame pointer has the caller's value, so it has that value throughout the sequence.

// maxEpilogue bounds the size in bytes of the code decoded to prove a row.
const maxEpilogue = 64

// popped reports whether want, from the current CFI rules, and got, from the current row of the section, differ only in
// the frame pointer, and the code has restored it before begin.
func (c *checker) popped(begin, end uint64, want, got frameState) bool {
	r := c.rules
	saved := r.FP.Rule == cfi.RuleExpression && bytes.Equal(r.FP.Expression, c.abi.fpAtFP)
	unchanged := c.segs.reader.Rows[c.segs.row].FP.Base == sframe.None
	want.fp = c.vm.reg(c.abi.fp)
	if !saved || !unchanged || want != got || r.CFA.Rule != cfi.RuleCFA || c.abi.epilogue == nil {
		return false
	}
	if begin == c.fn.End { // padding, which is never a return address; its row continues a proven row
		return c.proven == begin
	}
	code := c.code.read(begin, min(c.fn.End-begin, maxEpilogue))
	reg := r.CFA.Reg
	if reg == c.abi.sp {
		reg = noReg
	} else if r.CFA.Offset != 0 {
		return false
	}
	stays := func(pc uint64) bool { return c.fn.Begin < pc && pc < c.fn.End }
	n := uint64(c.abi.epilogue(code, begin, reg, stays))
	if n == 0 {
		return false
	}
	for n < end-begin && n < uint64(len(code)) { // only padding may follow
		size := c.abi.padding(code[n:])
		if size == 0 {
			return false
		}
		n += uint64(size)
	}
	if n < end-begin {
		return false
	}
	c.proven = end
	return true
}
