// Package step follows a program instruction by instruction, and compares what call frame information and
// SFrame say of each of them with what the processor does.
//
// The truth is a second stack, of frames: a call puts the return address, the stack pointer after the return and
// the frame pointer of the caller there, and the return takes them away, if it goes where the call came from.
// Signals, longjmp, unwinders, other stacks and threads are followed as well (Walk). A difference counts when the
// frame has ended by a return to where the truth said; until then it is doubtful.
//
// Programs for amd64 run under ptrace (Trace); those for other machines under QEMU, by GDB's remote protocol
// (Remote).
//
// Not in here: which programs to run (lab/stepping), and how the answers come about (cfi, convert).
package step
