// Package gopclntab reads the table by which the runtime of a Go program walks its stacks, of Go 1.18 and later.
//
// Linkers of Go write it for all Go code, and strip leaves it. For each function it has the pcsp table: at each pc,
// the distance from the stack pointer to the caller's frame. The rows are those that Go's linker writes to
// .debug_frame, and where a function has saved the caller's frame pointer, if the instructions of its prologue prove
// that.
//
// The layout is that of runtime/symtab.go (pcHeader, moduledata), runtime/runtime2.go (_func) and
// cmd/internal/obj/pcln.go (funcpctab).
package gopclntab

import (
	"bytes"
	"debug/elf"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// Name is the section that has the table as a rule, and stands for the table in messages.
const Name = ".gopclntab"

// A Kind says what rows a function has.
type Kind uint8

const (
	Framed    Kind = iota
	Outermost      // it has no caller
	Switches       // it leaves its stack for another one; its rows have a Base
	// A signal handler put a call of it into the code that the signal interrupted, so that its return address is that of
	// an instruction that was not executed. Its rows have a Base.
	Injected
	SigReturn // the kernel's signal handlers return to it; it has no rows
)

// NumKinds is the number of kinds.
const NumKinds = int(SigReturn) + 1

// A Row holds from its offset in the function up to the next one.
type Row struct {
	Off   uint32
	Frame uint32 // bytes that the function has on the stack, without the return address that a call leaves there
	// Saved is where the caller's frame pointer is, in bytes below the stack pointer that a call leaves; 0 if it is in
	// its register.
	Saved uint32
	Base  Base // only of functions of kind Switches and Injected
}

// A Function is a function of Go, or of the assembler of Go.
type Function struct {
	Begin, End uint64
	Off        uint32 // of its record in the table
	Kind       Kind
	Pushed     uint32 // bytes that an injected call has on the stack besides the return address
	Rows       []Row  // without Rows that equal the one before
}

// A Table is the table of a file.
type Table struct {
	Addr uint64 // of the table
	Size uint64 // in bytes

	file    *elffile.File
	data    []byte
	text    uint64 // the address that functions count from
	count   int    // functions
	names   []byte // NUL-terminated
	pctab   []byte // the pcsp tables
	records uint64 // offset of the list of functions, which their records follow
	old     bool   // the layout of Go 1.18 and 1.19
	minor   int    // the release is Go 1.minor; 0 if it is unknown
	quantum uint64 // addresses are multiples of it
	code    code
	left    int // bytes of pcsp tables that may still be decoded
	// exports: C may call functions of Go. A stack that grows there moves, and C's frame pointers do not.
	exports bool
}

// An Error is a malformed record.
type Error struct {
	Off uint64 // from the start of the table
	Msg string
}

func (e *Error) Error() string { return fmt.Sprintf("%s+%#x: %s", Name, e.Off, e.Msg) }

func errorf(off uint64, format string, args ...any) *Error {
	return &Error{off, fmt.Sprintf(format, args...)}
}

// Sizes in bytes, and offsets in a record (_func).
const (
	headerSize = 72
	entrySize  = 8 // of the list of functions
	recordSize = 40
	recordName = 4
	recordPCSP = 16
	recordID   = 40 // from Go 1.20 on; 4 less before
	recordFlag = 41 // the same
)

// Bits of a record's flag (internal/abi/symtab.go).
const (
	flagTopFrame = 1 << iota
	flagSPWrite
)

// Functions yields the functions by address, or the error of a malformed one. They are valid until the next one.
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
		return errorf(at, "function that ends at %#x, before it begins at %#x", next, entry)
	}
	if uint64(len(t.data)) < off+recordSize+4 || off > math.MaxUint32 {
		return errorf(at, "function with a record at %#x; the table ends at %#x", off, len(t.data))
	}
	*fn = Function{Begin: t.text + uint64(entry), Off: uint32(off), Rows: fn.Rows[:0]}
	record := t.data[off:]
	pcsp := o.Uint32(record[recordPCSP:])
	if pcsp == 0 {
		return nil
	}
	if uint64(pcsp) >= uint64(len(t.pctab)) {
		return errorf(off+recordPCSP, "pcsp table at %#x of a pctab of %d bytes", pcsp, len(t.pctab))
	}
	size, err := t.rows(fn, t.pctab[pcsp:], off+recordPCSP)
	if err != nil {
		return err
	}
	if size > uint64(next-entry) {
		return errorf(off+recordPCSP, "pcsp table for %d bytes of a function of %d", size, next-entry)
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
		fn.Pushed = pushed[elf.Machine(t.file.Machine)]
		t.code.prologue(fn)
	case fn.Kind == SigReturn:
		fn.Rows = fn.Rows[:0]
		t.code.early(fn)
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

// rows decodes a pcsp table into fn.Rows, and returns the size of the function; at is where errors are. A table is a
// sequence of pairs: what the value changes by, signed, and the number of quanta that it holds for. The value before
// the first pair is -1, and a change of 0 in another pair is the end.
func (t *Table) rows(fn *Function, b []byte, at uint64) (size uint64, err *Error) {
	value, all := int32(-1), len(b)
	for {
		change, n := varint(b)
		if n == 0 {
			return 0, errorf(at, "pcsp table without an end")
		}
		if t.left -= n; t.left < 0 {
			return 0, errorf(at, "pcsp tables overlap: together they are larger than the table")
		}
		if b = b[n:]; change == 0 && len(b) < all-n {
			return size, nil
		}
		value += int32(-(change & 1) ^ change>>1)
		quanta, n := varint(b)
		if n == 0 {
			return 0, errorf(at, "pcsp table without an end")
		}
		b = b[n:]
		row := Row{Off: uint32(size), Frame: uint32(value)}
		if value < 0 { // it removes what its caller has on the stack
			row.Frame, row.Base = 0, Unknown
		}
		if last := len(fn.Rows); last == 0 || fn.Rows[last-1].Frame != row.Frame || fn.Rows[last-1].Base != row.Base {
			fn.Rows = append(fn.Rows, row)
		}
		if size += uint64(quanta) * t.quantum; size > math.MaxInt32 {
			return 0, errorf(at, "pcsp table of %d bytes of code", size)
		}
	}
}

// varint decodes a number of at most 32 bits, and returns its size in bytes, or 0 if it has no end.
func varint(b []byte) (v uint32, n int) {
	for shift := 0; shift < 35 && n < len(b); shift += 7 {
		v |= uint32(b[n]&0x7f) << shift
		if n++; b[n-1]&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}

// switchers are functions that leave their stack. Most have the flag as well, but not where the kernel switches.
var switchers = [...]string{"asmcgocall", "asmcgocall_no_g", "asmcgocall_landingpad", "cgocallback", "clone", "gogo",
	"gosave_systemstack_switch", "mcall", "morestack", "sigreturn", "sigreturn__sigaction", "systemstack",
	"systemstack_switch"}

// sigtramp is the signal handler. It has the flag, but what called it has the frame of a signal.
const sigtramp = "runtime.sigtramp"

// name returns the name at an offset, or the first bytes of a long one.
func (t *Table) name(at uint32) string {
	const longest = 64 // of the names that matter
	if uint64(at) >= uint64(len(t.names)) {
		return ""
	}
	b := t.names[at:]
	b = b[:min(len(b), longest)]
	return string(b[:max(bytes.IndexByte(b, 0), 0)])
}

// kind returns the kind of a function with the ID, flag and name of its record.
func (t *Table) kind(fn *Function, id, flag byte, name string) Kind {
	short, ok := strings.CutPrefix(name, "runtime.")
	switch {
	case t.injected(id, name):
		return Injected
	case name == sigtramp && flag&flagSPWrite == 0:
		return Framed
	case ok && strings.HasPrefix(short, "sigreturn") && t.code.returns(fn):
		return SigReturn
	case flag&flagTopFrame != 0, t.file.Entry == fn.Begin,
		// The program begins there; a library's code of this name returns to the loader.
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
