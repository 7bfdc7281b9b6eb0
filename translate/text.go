package translate

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// RuleText formats the rule that causes the gap like readelf --debug-dump=frames-interp, with the ABI's register names:
// r10+0, c-8, u. It prints simple expressions as their value, for example *(rbp-8), and lists the operations of other
// expressions. If the gap is not caused by a rule, it returns "".
func (g *Gap) RuleText(abi sframe.ABI) string {
	r := &g.Rule
	switch {
	case g.Column == ColumnNone:
		return ""
	case r.Rule == cfi.RuleCFA:
		return value{base: ofReg, reg: r.Reg, off: r.Offset}.text(abi)
	case r.Rule == cfi.RuleRegister:
		return abi.Register(r.Reg)
	case r.Rule != cfi.RuleExpression && r.Rule != cfi.RuleValExpression:
		return r.String()
	}
	var v value
	if g.Column == ColumnCFA {
		v = evaluate(r.Expression, value{}, arch.NoReg)
	} else if v = evaluate(r.Expression, value{base: ofCFA}, arch.NoReg); r.Rule == cfi.RuleExpression {
		v = load(v)
	}
	if v.base == unknown {
		var b strings.Builder
		b.WriteString("exp ")
		prettyPrint(&b, r.Expression, abi.Register)
		return strings.TrimSpace(b.String())
	}
	return v.text(abi)
}

// maxPrinted is the maximum size in bytes of expressions that are printed in full.
const maxPrinted = 64

// prettyPrint is op.PrettyPrint, but safe for malformed expressions. op.PrettyPrint panics on truncated expressions,
// and allocates the encoded size of a block before it checks that size.
func prettyPrint(out io.Writer, code []byte, name func(uint64) string) {
	if len(code) > maxPrinted {
		fmt.Fprintf(out, "% x and %d more bytes", code[:maxPrinted], len(code)-maxPrinted)
		return
	}
	if bytes.IndexByte(code, byte(op.DW_OP_implicit_value)) >= 0 {
		fmt.Fprintf(out, "% x", code)
		return
	}
	defer func() {
		if recover() != nil {
			fmt.Fprintf(out, "% x", code)
		}
	}()
	op.PrettyPrint(out, code, name)
}

func (v value) text(abi sframe.ABI) string {
	var s string
	if v.base == ofCFA {
		s = fmt.Sprintf("c%+d", v.off)
	} else {
		s = fmt.Sprintf("%s%+d", abi.Register(v.reg), v.off)
	}
	if v.deref {
		return "*(" + s + ")"
	}
	return s
}
