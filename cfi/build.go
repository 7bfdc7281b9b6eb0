package cfi

import (
	"encoding/binary"
	"fmt"

	"cfi2sframe/internal/arch"
)

// A builder makes functions from rows of type R. Rows and functions that are equal have the same numbers.
type builder[R comparable] struct {
	exec     *executor
	state    func(R) state     // the rules of a row
	states   map[R]uint32      // their numbers
	programs map[string]uint32 // numbers of programs by CIE and steps
	steps    []Step            // of the current function
	failed   bool              // the current function has more distinct rules than a file may have
	key      []byte
}

func newBuilder[R comparable](x *executor, rules func(R) state) *builder[R] {
	return &builder[R]{exec: x, state: rules, states: make(map[R]uint32), programs: make(map[string]uint32)}
}

// row adds a row to the current function.
func (b *builder[R]) row(off uint32, r R) {
	n, ok := b.states[r]
	if !ok {
		s := b.state(r)
		if n, ok = b.exec.numbering.number(&s); !ok {
			b.failed = true
			return
		}
		b.states[r] = n
	}
	if last := len(b.steps) - 1; last >= 0 && b.steps[last].Off >= off {
		b.steps = b.steps[:last] // the previous row covers no bytes
	}
	if last := len(b.steps) - 1; last < 0 || b.steps[last].Number != n {
		b.steps = append(b.steps, Step{off, n})
	}
}

// stepSize is the size of a step in bytes.
const stepSize = 8

// function returns a function with the rows added since the last call.
func (b *builder[R]) function(begin, end uint64, off uint32, d *cie) Function {
	x := b.exec
	b.key = binary.LittleEndian.AppendUint32(b.key[:0], d.number)
	for _, s := range b.steps {
		b.key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b.key, s.Off), s.Number)
	}
	fn := Function{Begin: begin, End: end, off: off, limit: uint32(stepSize * len(b.steps)), cie: d}
	n, ok := b.programs[string(b.key)]
	if !ok || b.failed {
		n = uint32(len(x.all))
		x.all = append(x.all, program{x.copySteps(b.steps), d, 0, fn.limit})
		if b.failed {
			x.all[n].steps, x.errs[n] = nil, &Error{d.sec.name, uint64(off), fmt.Sprintf(tooManyRules, maxRules)}
		} else {
			b.programs[string(b.key)] = n
		}
	}
	fn.program = n
	b.steps, b.failed = b.steps[:0], false
	return fn
}

// entry returns the rules at the entry of a function.
func entry(a *arch.Arch) state {
	s := noState
	s.raReg = a.RA
	s.cfa = rule{kind: RuleCFA, reg: a.SP, offset: int64(a.EntryCFA)}
	if a.FixedRA != 0 {
		s.ra = saved(a.FixedRA)
	}
	return s
}

// saved returns the rule of a register that is saved at an offset from the CFA.
func saved(offset int64) rule { return rule{kind: RuleOffset, offset: offset} }
