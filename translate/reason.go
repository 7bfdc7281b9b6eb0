package translate

// A Reason tells why code cannot be expressed in SFrame.
type Reason uint8

const (
	_ Reason = iota
	// stack realignment: the CFA is loaded from the frame, or is in the register whose value is saved in the frame
	DRAP
	CFARegister   // the CFA is based on a register other than SP and FP
	CFAExpression // the CFA is an expression other than a register plus an offset
	CFAAddress    // the CFA depends on the load address
	CFAMissing    // the row has no CFA rule
	RARegister    // the return address is in a register
	RAOffset      // the return address is not saved where the ABI requires
	RARule        // the return address has an unsupported rule
	RASigned      // the return address is signed with a modifier other than SP
	FPRegister    // FP is saved in a register
	FPRule        // FP is not saved at an offset from the CFA
	FPWithoutRA   // FP is saved, but the return address is not
	FPUndefined   // FP is lost
	SPRule        // SP has a rule that differs from the CFA
	SignalFrame   // the function is a signal frame
	GoStackSwitch // a Go function switches stacks
	GoTable       // a Go function's code contradicts .gopclntab
	OffsetRange   // an offset exceeds 32 bits, or is not a multiple of the ABI's unit
	TooFar        // the function is too far from the section for a 32-bit start address
	TooLarge      // the function has at least 4 GiB of code or at least maxRows rows
	Outermost     // the return address is undefined: there is no caller
	OutsideText   // Linux does not look up the code: a kernel frees it after use
	Disputed      // FDEs contradict each other
	Malformed     // the CFI is malformed
	numReasons    // not a reason
)

// Names are stable because JSON reports contain them.
var reasons = [numReasons]struct{ name, text string }{
	DRAP:          {"drap", "stack realignment (DRAP)"},
	CFARegister:   {"cfa-register", "CFA based on a register other than SP and FP"},
	CFAExpression: {"cfa-expression", "CFA given by an expression"},
	CFAAddress:    {"cfa-address", "CFA depends on the load address"},
	CFAMissing:    {"cfa-missing", "no CFA rule"},
	RARegister:    {"ra-register", "return address in a register"},
	RAOffset:      {"ra-offset", "return address not in the ABI's slot"},
	RARule:        {"ra-rule", "unsupported return address rule"},
	RASigned:      {"ra-signed", "return address signed with a modifier other than SP"},
	FPRegister:    {"fp-register", "frame pointer saved in a register"},
	FPRule:        {"fp-rule", "unsupported frame pointer rule"},
	FPWithoutRA:   {"fp-without-ra", "frame pointer saved, but not the return address"},
	FPUndefined:   {"fp-undefined", "frame pointer undefined"},
	SPRule:        {"sp-rule", "stack pointer is not the CFA"},
	SignalFrame:   {"signal-frame", "signal frame"},
	GoStackSwitch: {"go-stack-switch", "Go function that switches stacks"},
	GoTable:       {"go-table", "Go function whose code contradicts .gopclntab"},
	OffsetRange:   {"offset-range", "offset exceeds 32 bits or is not a multiple of the ABI's unit"},
	TooFar:        {"too-far", "more than 2 GiB from the section"},
	TooLarge:      {"too-large", "function of at least 4 GiB or 524,288 rows"},
	Outermost:     {"outermost", "outermost frame (undefined return address)"},
	OutsideText:   {"outside-text", "code that Linux frees after use or does not look up"},
	Disputed:      {"disputed", "FDEs that contradict each other"},
	Malformed:     {"malformed", "malformed CFI"},
}

// Name returns a short name for use by programs, for example "cfa-register".
func (r Reason) Name() string { return reasons[r].name }

func (r Reason) String() string { return reasons[r].text }

// Loss reports whether a stack trace loses frames because of the gap. Outermost code has no caller.
func (r Reason) Loss() bool { return r != Outermost }

// Reasons returns all reasons in the order of reports.
func Reasons() []Reason {
	var all []Reason
	for r := DRAP; r < numReasons; r++ {
		all = append(all, r)
	}
	return all
}
