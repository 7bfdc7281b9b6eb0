package report

import (
	"path"
	"slices"
	"strings"

	"cfi2sframe/translate"
)

// causes says for each reason why programs have such code.
var causes = map[string]string{
	translate.DRAP.Name():          "the function realigns the stack for variables of 32 bytes and more (AVX), or for -mstackrealign, and finds its frame through memory or another register",
	translate.CFARegister.Name():   "code that changes the stack pointer while another register holds the frame: hand-written assembly, or stack probing",
	translate.CFAExpression.Name(): "the frame has a place that has to be computed: hand-written assembly, or vector registers of variable length",
	translate.CFAAddress.Name():    "the frame is computed from an address of the code that is known only when it is loaded, or linked: hand-written call frame information",
	translate.CFAMissing.Name():    "the call frame information is incomplete",
	translate.RARegister.Name():    "the return address is taken off the stack for a while, as vfork and unwinders do",
	translate.RAOffset.Name():      "the return address is kept apart from the frame, as in context switches and stack splitting",
	translate.RARule.Name():        "the return address is elsewhere, as in context switches and trampolines",
	translate.RASigned.Name():      "the return address is signed with more than the stack pointer (-mbranch-protection=pac-ret+pc)",
	translate.FPRegister.Name():    "a leaf function keeps the caller's frame pointer in another register",
	translate.FPRule.Name():        "the caller's frame pointer is found through the frame pointer itself, as in functions that realign the stack, or is computed",
	translate.FPWithoutRA.Name():   "a leaf function, or one that does not return, saves the frame pointer alone",
	translate.FPUndefined.Name():   "the function does not return to its caller, or uses the frame pointer for something else",
	translate.SPRule.Name():        "the caller's stack pointer is set apart from the frame: context switches, longjmp, Go on s390x",
	translate.SignalFrame.Name():   "a signal handler returns here; the kernel has pushed the frame",
	translate.OffsetRange.Name():   "a frame of more than 2 GiB, or one that is not aligned as the ABI asks for",
	translate.TooFar.Name():        "the program is larger than 2 GiB, for which there is --format 3",
	translate.TooLarge.Name():      "the function is larger than what its description can hold",
	translate.Outermost.Name():     "the program or a thread starts here",
	translate.Malformed.Name():     "the call frame information is damaged; the message says where",
}

// cause returns why programs have such code. Functions that probe the stack have the frame in one of the registers.
func (g *Gap) cause(probing []string) string {
	inProbing := func(reg string) bool { return strings.HasPrefix(g.Rule, reg+"+") }
	switch ext := path.Ext(g.Source); {
	case g.Reason == translate.Outermost.Name() || g.Reason == translate.SignalFrame.Name():
	case ext == ".S" || ext == ".s" || ext == ".asm":
		return "hand-written assembly (" + path.Base(g.Source) + ")"
	case g.Reason == translate.CFARegister.Name() && g.Offset > 0 && slices.ContainsFunc(probing, inProbing):
		return "the function probes a large stack frame page by page (-fstack-clash-protection)"
	}
	return causes[g.Reason]
}
