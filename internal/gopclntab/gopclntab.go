// Package gopclntab reads the table that the runtime of Go programs uses to unwind stacks, for Go 1.18 and later.
//
// Go's linker emits the table for all Go code, and strip keeps it. For each function, the table contains a pcsp table:
// the distance from the stack pointer to the caller's frame at each pc. The resulting rows are those that Go's linker
// emits in .debug_frame. The rows also tell where the caller's frame pointer is saved, if the instructions of the
// prologue prove it.
//
// The layout is defined by runtime/symtab.go (pcHeader, moduledata), runtime/runtime2.go (_func) and
// cmd/internal/obj/pcln.go (funcpctab).
package gopclntab

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// Name is the usual name of the section with the table. Messages refer to the table by this name.
const Name = ".gopclntab"

// A Kind classifies a function by its rows.
type Kind uint8

const (
	Framed    Kind = iota
	Outermost      // has no caller
	Switches       // switches to another stack; rows have a Base
	// A signal handler injected a call to the function into interrupted code, so its return address is that of an
	// instruction not yet executed. Rows have a Base.
	Injected
	SigReturn // signal handlers return to it; has no rows
)

// NumKinds is the number of kinds.
const NumKinds = int(SigReturn) + 1

// A Row applies from its offset in the function to the next row.
type Row struct {
	Off   uint32
	Frame uint32 // size of the frame in bytes, without the return address that a call pushes
	// Saved locates the caller's frame pointer, in bytes below the stack pointer at function entry. If Saved is 0, the
	// register still holds the caller's value.
	Saved uint32
	Base  Base // for kinds Switches and Injected only
}

// A Function is a Go or Go assembly function.
type Function struct {
	Begin, End uint64
	Off        uint32 // offset of its record in the table
	Kind       Kind
	Pushed     uint32 // bytes that an injected call pushes in addition to the return address
	Rows       []Row  // adjacent rows differ
}

// A Table is the .gopclntab of a file.
type Table struct {
	Addr uint64 // address of the table
	Size uint64 // in bytes

	file    *elffile.File
	data    []byte
	text    uint64 // base address of functions
	count   int    // number of functions
	names   []byte // NUL-terminated
	pctab   []byte // the pcsp tables
	records uint64 // offset of the list of functions; their records follow it
	old     bool   // the layout of Go 1.18 and 1.19
	minor   int    // the release is Go 1.minor; 0 if it is unknown
	quantum uint64 // addresses are multiples of it
	code    codeReader
	left    int // number of bytes of pcsp tables that may still be decoded
	// exports is set if C may call Go functions. While C calls a Go function, the goroutine's stack may move, but frame
	// pointers that C code saved are not adjusted.
	exports bool
}

// An Error describes a malformed record.
type Error struct {
	Off uint64 // offset from the start of the table
	Msg string
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", Name, e.Off, e.Msg) }

func errorf(off uint64, format string, args ...any) *Error {
	return &Error{off, fmt.Sprintf(format, args...)}
}

// Sizes in bytes, and offsets in a record (_func).
const (
	headerSize = 72
	entrySize  = 8 // size of an entry in the list of functions
	recordSize = 40
	recordName = 4
	recordPCSP = 16
	recordID   = 40 // since Go 1.20; 36 before
	recordFlag = 41 // since Go 1.20; 37 before
)

// Bits of a record's flag (internal/abi/symtab.go).
const (
	flagTopFrame = 1 << iota
	flagSPWrite
)

// Functions returns an iterator over the functions, sorted by address. For a malformed function, it yields an error. A
// Function is valid only until the next iteration.
func (t *Table) Functions() iter.Seq2[*Function, *Error] {
	return func(yield func(*Function, *Error) bool) {
		t.left = len(t.data)
		var fn Function
		for i := range t.count {
			err := t.function(i, &fn)
			if err == nil && fn.End == 0 {
				continue
			}
			if !yield(&fn, err) || t.left < 0 {
				return
			}
		}
	}
}

// function decodes the i-th function.
func (t *Table) function(i int, fn *Function) *Error {
	o, at := t.file.Order, t.records+uint64(i)*entrySize
	entry, next := o.Uint32(t.data[at:]), o.Uint32(t.data[at+entrySize:])
	off := t.records + uint64(o.Uint32(t.data[at+4:]))
	if next < entry {
		return errorf(at, "function ends at %#x, before its start %#x", next, entry)
	}
	if uint64(len(t.data)) < off+recordSize+4 || off > math.MaxUint32 {
		return errorf(at, "record at %#x is past the end of the table (%#x)", off, len(t.data))
	}
	*fn = Function{Begin: t.text + uint64(entry), Off: uint32(off), Rows: fn.Rows[:0]}
	record := t.data[off:]
	pcsp := o.Uint32(record[recordPCSP:])
	if pcsp == 0 {
		return nil
	}
	if uint64(pcsp) >= uint64(len(t.pctab)) {
		return errorf(off+recordPCSP, "pcsp table at %#x is past the end of pctab (%d bytes)", pcsp, len(t.pctab))
	}
	size, err := t.rows(fn, t.pctab[pcsp:], off+recordPCSP)
	if err != nil {
		return err
	}
	if size > uint64(next-entry) {
		return errorf(off+recordPCSP, "pcsp table covers %d bytes, but the function has %d", size, next-entry)
	}
	fn.End = fn.Begin + size
	name := t.name(o.Uint32(record[recordName:]))
	if t.old {
		record = t.data[off-4:]
	}
	fn.Kind = t.kind(fn, record[recordID], record[recordFlag], name)
	pops := slices.ContainsFunc(fn.Rows, func(r Row) bool { return r.Base == Unknown })
	switch {
	case fn.Kind == Injected:
		fn.Pushed = t.code.pushed
		t.code.prologue(fn)
	case fn.Kind == SigReturn:
		fn.Rows = fn.Rows[:0]
		t.code.extendBack(fn)
	case pops, name == "runtime.asmcgocall" && t.exports:
		fn.Kind = Switches
		fn.Rows = append(fn.Rows[:0], Row{Base: Unknown})
	case fn.Kind == Framed:
		t.code.prologue(fn)
	case fn.Kind == Switches:
		t.code.prologue(fn)
		t.code.onStacks(fn, name == "runtime.mcall" || name == "runtime.morestack")
		if name == "runtime.systemstack" && t.minor < pinned {
			fn.withoutFP()
		}
	}
	return nil
}

// rows decodes a pcsp table into fn.Rows, and returns the size of the function in bytes. Errors refer to the offset
// tableOff. A pcsp table is a sequence of pairs: a signed change of the value, and the number of quanta for which the
// value applies. The initial value is -1. Except in the first pair, a change of 0 ends the table.
func (t *Table) rows(fn *Function, b []byte, tableOff uint64) (size uint64, err *Error) {
	value, all := int32(-1), len(b)
	for {
		change, n := varint(b)
		if n == 0 {
			return 0, errorf(tableOff, "pcsp table is not terminated")
		}
		if t.left -= n; t.left < 0 {
			return 0, errorf(tableOff, "pcsp tables overlap: their total size exceeds that of the table")
		}
		if b = b[n:]; change == 0 && len(b) < all-n {
			return size, nil
		}
		value += int32(-(change & 1) ^ change>>1)
		quanta, n := varint(b)
		if n == 0 {
			return 0, errorf(tableOff, "pcsp table is not terminated")
		}
		b = b[n:]
		row := Row{Off: uint32(size), Frame: uint32(value)}
		if value < 0 { // the function pops part of its caller's frame
			row.Frame, row.Base = 0, Unknown
		}
		if last := len(fn.Rows); last == 0 || fn.Rows[last-1].Frame != row.Frame || fn.Rows[last-1].Base != row.Base {
			fn.Rows = append(fn.Rows, row)
		}
		if size += uint64(quanta) * t.quantum; size > math.MaxInt32 {
			return 0, errorf(tableOff, "pcsp table covers %d bytes of code", size)
		}
	}
}

// varint decodes a number of up to 32 bits and returns its size in bytes. If the number is not terminated, the size is
// 0.
func varint(b []byte) (v uint32, n int) {
	for shift := 0; shift < 35 && n < len(b); shift += 7 {
		v |= uint32(b[n]&0x7f) << shift
		if n++; b[n-1]&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}

// switchers lists the runtime functions that switch stacks. Most switchers have flagSPWrite; functions in which the
// kernel switches the stack do not.
var switchers = [...]string{"asmcgocall", "asmcgocall_no_g", "asmcgocall_landingpad", "cgocallback", "clone", "gogo",
	"gosave_systemstack_switch", "mcall", "morestack", "sigreturn", "sigreturn__sigaction", "systemstack",
	"systemstack_switch"}

// sigtramp is the signal handler. It has flagTopFrame, but its caller is a signal frame.
const sigtramp = "runtime.sigtramp"

// name returns the name at an offset. A name that is too long yields the empty string.
func (t *Table) name(at uint32) string {
	const longest = 64 // longer than all relevant names
	if uint64(at) >= uint64(len(t.names)) {
		return ""
	}
	b := t.names[at:]
	b = b[:min(len(b), longest)]
	return string(b[:max(bytes.IndexByte(b, 0), 0)])
}

// kind returns the kind of a function from the ID, flag and name in its record.
func (t *Table) kind(fn *Function, id, flag byte, name string) Kind {
	short, ok := strings.CutPrefix(name, "runtime.")
	switch {
	case t.injected(id, name):
		return Injected
	case name == sigtramp && flag&flagSPWrite == 0:
		return Framed
	case ok && strings.HasPrefix(short, "sigreturn") && t.code.isSigreturn(fn):
		return SigReturn
	case flag&flagTopFrame != 0, t.file.Entry == fn.Begin,
		// Execution starts in _rt0_*; the variants for libraries return to the loader.
		strings.HasPrefix(name, "_rt0_") && !strings.Contains(name, "_lib"):
		return Outermost
	case flag&flagSPWrite != 0:
		return Switches
	}
	if ok && slices.Contains(switchers[:], short) {
		return Switches
	}
	return Framed
}
