// Package step runs a program instruction by instruction, and compares what its call frame information and SFrame say
// of the caller with what the processor does.
//
// The truth is a second stack, of frames. A call adds the return address, the stack pointer after the return and the
// caller's frame pointer. A return that goes where the call came from removes them. Signals, longjmp, unwinders, other
// stacks and threads are followed as well (walk.go). A wrong answer is confirmed when the frame ends by a return to
// where the truth said.
//
// Programs for amd64 run under ptrace (Trace); those for other machines run under QEMU (Remote).
package step
