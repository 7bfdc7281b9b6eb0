package conformance

import (
	"fmt"

	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/sframe"
)

// ownHello says that our own reader supports everything.
var ownHello = vector.Hello{
	Reader: "cfi2sframe", Formats: []string{"1", "2", "2e1", "2e2", "3"},
	ABIs: []string{"amd64", "aarch64", "aarch64_be", "s390x"},
}

// Own answers a question with package sframe.
func Own(q *vector.Question) vector.Reply {
	s, err := sframe.Decode(q.Section, uint64(q.Address))
	if err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	reply := vector.Reply{Answers: make([]*vector.Row, len(q.PCs))}
	for i, pc := range q.PCs {
		m, ok, err := s.Lookup(uint64(pc))
		if err != nil {
			return vector.Reply{Refused: err.Error()}
		}
		if !ok {
			continue
		}
		row := &vector.Row{Signal: m.FDE.Signal, Outermost: m.Outermost}
		if !m.Outermost {
			row.CFA, row.RA, row.FP = rule(s.ABI, m.CFA), rule(s.ABI, m.RA), rule(s.ABI, m.FP)
			if m.Signed {
				row.Signed = map[bool]string{false: "A", true: "B"}[m.FDE.KeyB]
			}
		}
		reply.Answers[i] = row
	}
	return reply
}

// rule converts a rule to the form of answers, in which SP and FP are names, not register numbers.
func rule(abi sframe.ABI, r sframe.Rule) *vector.Rule {
	base := ""
	switch {
	case r.Base == sframe.None:
		return nil
	case r.Base == sframe.CFA:
		base = "cfa"
	case r.Base == sframe.SP, r.Base == sframe.Register && r.Reg == abi.SP():
		base = "sp"
	case r.Base == sframe.FP, r.Base == sframe.Register && r.Reg == abi.FP():
		base = "fp"
	default:
		base = fmt.Sprint("r", r.Reg)
	}
	return &vector.Rule{Base: base, Offset: int64(r.Offset), Deref: r.Deref}
}
