package report

import (
	"path"
	"slices"
	"strings"

	"cfi2sframe/internal/arch"
	"cfi2sframe/translate"
)

// causes says for each reason why programs have such code.
var causes = map[translate.Reason]string{
	translate.DRAP: "the function realigns the stack for variables of 32 bytes and more (AVX), or " +
		"for -mstackrealign, and finds its frame through memory or another register",
	translate.CFARegister: "code that changes the stack pointer while another register holds the frame: " +
		"hand-written assembly, or stack probing",
	translate.CFAExpression: "the frame has a place that has to be computed: " +
		"hand-written assembly, or vector registers of variable length",
	translate.CFAAddress: "the frame is computed from an address of the code that is known only when it is loaded, " +
		"or linked: hand-written call frame information",
	translate.CFAMissing: "the call frame information is incomplete",
	translate.RARegister: "the return address is taken off the stack for a while, as vfork and unwinders do",
	translate.RAOffset:   "the return address is kept apart from the frame, as in context switches and stack splitting",
	translate.RARule:     "the return address is elsewhere, as in context switches and trampolines",
	translate.RASigned: "the return address is signed with more than the stack pointer " +
		"(-mbranch-protection=pac-ret+pc)",
	translate.FPRegister: "a leaf function keeps the caller's frame pointer in another register",
	translate.FPRule: "the caller's frame pointer is found through the frame pointer itself, as " +
		"in functions that realign the stack, or is computed",
	translate.FPWithoutRA: "a leaf function, or one that does not return, saves the frame pointer alone",
	translate.FPUndefined: "the function does not return to its caller, or uses the frame pointer for something else",
	translate.SPRule: "the caller's stack pointer is set apart from the frame: context switches, longjmp, " +
		"Go on s390x",
	translate.GoStackSwitch: "Go's runtime goes to another stack here, or leaves it",
	translate.GoTable: "the instructions are not proved to make the frame that Go's table says; " +
		"the message says what differs",
	translate.SignalFrame: "a signal handler returns here, or Go's has inserted a call",
	translate.OffsetRange: "a frame of more than 2 GiB, or one that is not aligned as the ABI asks for",
	translate.TooFar:      "the program is larger than 2 GiB, for which there is --format 3",
	translate.TooLarge:    "the function is larger than what its description can hold",
	translate.Outermost:   "the program or a thread starts here",
	translate.OutsideText: "code that runs once, when the kernel or the module starts or ends " +
		"(.init.text, .exit.text), or of another executable segment",
	translate.Malformed: "the call frame information is damaged; the message says where",
}

// isAssembly reports whether a source file is hand-written assembly.
func isAssembly(source string) bool {
	return slices.Contains([]string{".S", ".s", ".asm"}, path.Ext(source))
}

// cause returns why programs have such code. Functions that probe the stack have the frame in one of the registers.
func (g *Gap) cause(reason translate.Reason, a *arch.Arch) string {
	inProbing := func(reg string) bool { return strings.HasPrefix(g.Rule, reg+"+") }
	switch {
	case reason == translate.Outermost || reason == translate.SignalFrame || reason == translate.GoStackSwitch:
	case isAssembly(g.Source):
		return "hand-written assembly (" + path.Base(g.Source) + ")"
	case reason == translate.CFARegister && g.Offset > 0 && a != nil && slices.ContainsFunc(a.Probing, inProbing):
		return "the function probes a large stack frame page by page (-fstack-clash-protection)"
	}
	return causes[reason]
}
