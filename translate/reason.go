package translate

import "fmt"

// A Reason says why code has no SFrame form.
type Reason uint8

const (
	_ Reason = iota
	// stack realignment: the CFA is loaded from the frame, or is in the register that the frame's copy came from
	DRAP
	CFARegister   // the CFA is based on a register other than SP and FP
	CFAExpression // the CFA is an expression that is no register plus an offset
	CFAAddress    // the CFA depends on the address that the code is loaded at
	CFAMissing    // the row has no CFA rule
	RARegister    // the return address is in a register
	RAOffset      // the return address is saved, but not where the ABI requires
	RARule        // the return address has another rule
	RASigned      // the return address is signed in a way that is not SP's
	FPRegister    // FP is saved in a register
	FPRule        // FP is not saved at an offset from the CFA
	FPWithoutRA   // FP is saved and the return address is not
	FPUndefined   // FP is lost
	SPRule        // SP has a rule, and its value is not the CFA
	SignalFrame   // the function is a signal frame
	GoStackSwitch // the function of a Go program goes to another stack
	GoTable       // the code of a function of a Go program is not what .gopclntab says
	OffsetRange   // an offset does not fit 32 bits, or the ABI's scale
	TooFar        // the function is too far from the section for a start address of 32 bits
	TooLarge      // the function has 4 GiB or more, or maxRows rows
	Outermost     // the return address is undefined: there is no caller
	OutsideText   // the reader does not look up the code, as Linux frees it, or runs it in another segment
	Malformed     // the CFI is malformed
)

// Names are stable: JSON reports contain them.
var reasons = [...]struct{ name, text string }{
	DRAP:          {"drap", "stack realignment (DRAP)"},
	CFARegister:   {"cfa-register", "CFA based on a register other than SP and FP"},
	CFAExpression: {"cfa-expression", "CFA given by an expression"},
	CFAAddress:    {"cfa-address", "CFA depends on where the code is loaded"},
	CFAMissing:    {"cfa-missing", "no CFA rule"},
	RARegister:    {"ra-register", "return address in a register"},
	RAOffset:      {"ra-offset", "return address not at the ABI's place"},
	RARule:        {"ra-rule", "return address by another rule"},
	RASigned:      {"ra-signed", "return address signed with more than SP"},
	FPRegister:    {"fp-register", "frame pointer saved in a register"},
	FPRule:        {"fp-rule", "frame pointer by another rule"},
	FPWithoutRA:   {"fp-without-ra", "frame pointer saved, but not the return address"},
	FPUndefined:   {"fp-undefined", "frame pointer undefined"},
	SPRule:        {"sp-rule", "stack pointer is not the CFA"},
	SignalFrame:   {"signal-frame", "signal frame"},
	GoStackSwitch: {"go-stack-switch", "Go function that switches stacks"},
	GoTable:       {"go-table", "Go function whose code is not what .gopclntab says"},
	OffsetRange:   {"offset-range", "offset over 32 bits or off the ABI's scale"},
	TooFar:        {"too-far", "more than 2 GiB from the section"},
	TooLarge:      {"too-large", "function of 4 GiB, or of 524,288 rows, or more"},
	Outermost:     {"outermost", "outermost frame (undefined return address)"},
	OutsideText:   {"outside-text", "code that Linux frees after use, or does not look up"},
	Malformed:     {"malformed", "malformed CFI"},
}

// Name returns a short name for programs, such as "cfa-register".
func (r Reason) Name() string {
	if int(r) < len(reasons) && reasons[r].name != "" {
		return reasons[r].name
	}
	return fmt.Sprintf("reason-%d", uint8(r))
}

func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r].text != "" {
		return reasons[r].text
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Loss reports whether a stack trace loses frames by the gap. Outermost code has no caller to find.
func (r Reason) Loss() bool { return r != Outermost }

// Reasons returns all reasons, in the order in which reports list them.
func Reasons() []Reason {
	var all []Reason
	for r := DRAP; int(r) < len(reasons); r++ {
		all = append(all, r)
	}
	return all
}
