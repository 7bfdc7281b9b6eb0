package verify

import (
	"bytes"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// GCC's CFI for functions that realign their stack says that the caller's frame pointer is saved where the frame
// pointer points, up to the function's end. But the epilogue has restored it before it restores the stack pointer.
// There a section may say that it is unchanged. The proof is by the instructions from that row on: they restore the
// stack pointer and leave the function, and none writes the frame pointer. When a function returns, the frame pointer
// has the caller's value, so it has that value in the whole sequence.

// maxEpilogue bounds the code in bytes that is decoded for such a row.
const maxEpilogue = 64

// popped reports whether want, by the current rules of CFI, and got, by the current row of the section from begin to end,
// differ in the frame pointer only, which the code has restored.
func (c *checker) popped(begin, end uint64, want, got frameState) bool {
	r := c.rules
	saved := r.FP.Rule == cfi.RuleExpression && bytes.Equal(r.FP.Expression, c.abi.fpAtFP)
	unchanged := c.segs.reader.Rows[c.segs.row].FP.Base == sframe.None
	want.fp = c.vm.reg(c.abi.fp)
	if !saved || !unchanged || want != got || r.CFA.Rule != cfi.RuleCFA || c.abi.epilogue == nil {
		return false
	}
	if begin == c.fn.End { // padding, to which nothing returns, after a row that was proven
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
	for n < end-begin && n < uint64(len(code)) { // no code follows
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
