package report

import (
	"fmt"
	"io"
)

// A Lookup holds the rows for some pcs in a file.
type Lookup struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	ABI    string `json:"abi"`
	From   string `json:"from"`             // .sframe, or cfi
	Format int    `json:"format,omitempty"` // of .sframe
	PCs    []PC   `json:"pcs"`
}

// A PC is an address in code with its row, or the reason why it has none. In a relocatable object, addresses are
// relative to the section.
type PC struct {
	PC       uint64 `json:"pc"`
	Section  string `json:"section,omitempty"`
	Function string `json:"function,omitempty"` // name of the section if no symbol names the function
	Offset   uint64 `json:"offset"`
	Source   string `json:"source,omitempty"` // "instructions" if the row does not come from CFI
	Row      *PCRow `json:"row,omitempty"`
	Why      string `json:"why,omitempty"`
	Gap      *PCGap `json:"gap,omitempty"` // why SFrame cannot express the CFI row
}

// A PCRow is the row of a pc. Rules are formatted by package sframe or cfi.
type PCRow struct {
	Begin     uint64 `json:"begin"`
	End       uint64 `json:"end"`
	CFA       string `json:"cfa,omitempty"`
	RA        string `json:"ra,omitempty"`
	FP        string `json:"fp,omitempty"`
	SP        string `json:"sp,omitempty"` // only CFI has this rule
	Outermost bool   `json:"outermost,omitempty"`
	Signal    bool   `json:"signal,omitempty"`
	Signed    bool   `json:"signed,omitempty"`
}

// String returns the rules.
func (r *PCRow) String() string {
	s := "outermost, no caller"
	if !r.Outermost {
		s = fmt.Sprintf("CFA %s, RA %s, FP %s", r.CFA, r.RA, r.FP)
	}
	if r.SP != "" {
		s += ", SP " + r.SP
	}
	if r.Signed {
		s += ", signed"
	}
	if r.Signal {
		s += ", signal frame"
	}
	return s
}

// A PCGap says why a pc has no row.
type PCGap struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Text prints a line for each pc.
func (l *Lookup) Text(w io.Writer) error {
	for i := range l.PCs {
		if _, err := fmt.Fprintln(w, &l.PCs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *PC) String() string {
	s := inSection(p.Section) + fmt.Sprintf("%#x", p.PC)
	if p.Function != "" {
		s += fmt.Sprintf(" %s+%#x", Printable(p.Function), p.Offset)
	}
	if p.Row == nil {
		return s + ": no row: " + PrintableMessage(p.Why)
	}
	s += fmt.Sprintf(": %#x-%#x: %v", p.Row.Begin, p.Row.End, p.Row)
	if p.Source != "" {
		s += "; from " + p.Source
	}
	if p.Gap != nil {
		s += "; " + p.Gap.Text
	}
	return s
}
