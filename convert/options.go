package convert

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// DefaultVersion is the version that is written unless Options has another one: the only one that GNU as and ld 2.47
// write, and the Linux series reads.
const DefaultVersion = sframe.V3

// Options say how to make a section. The zero value makes one of the default version, and checks the result.
type Options struct {
	Version   sframe.Version // to write; 0 stands for DefaultVersion
	PCRel     bool           // start addresses count from their own field (errata 1)
	Outermost bool           // rows for code without a caller (errata 2)
	Source    cfi.Source     // where the CFI comes from
	Debug     Opener         // opens the debug file, which has the .debug_frame and the names that are not in the file; or nil
	Force     bool           // replace an old .sframe
	Update    bool           // replace an old .sframe, unless it is up to date
	NoVerify  bool           // do not check the result
	Infer     bool           // rows from instructions, for code without CFI
	NoPadding bool           // do not describe the padding between functions
	NoPCMask  bool           // describe PLTs with rows for each entry, not with PC-mask FDEs
	Share     Share          // of FRE lists
	// Workers bounds the threads. 0 stands for the number of processors, and fewer for small files. The result does not
	// depend on it.
	Workers int
	// Linux is the part of Linux that reads the section. In a kernel, it limits what is written.
	Linux Linux
	// Reserved has the symbols START:END of bytes in a linked file that a linker script reserves for the section.
	Reserved string
}

// An Opener opens a file that belongs to f. It may return nil if there is none.
type Opener func(f *elffile.File) (*Companion, error)

// A Companion is an open file that belongs to another one: its debug file, or the file with its detached .sframe. It
// may be nil.
type Companion struct {
	ELF    *elffile.File
	Path   string // in messages
	Closer io.Closer
}

// open calls an Opener, which may be nil.
func (o Opener) open(f *elffile.File) (*Companion, error) {
	if o == nil {
		return nil, nil
	}
	return o(f)
}

// File returns the ELF file, or nil without a Companion.
func (c *Companion) File() *elffile.File {
	if c == nil {
		return nil
	}
	return c.ELF
}

// Close closes the file.
func (c *Companion) Close() {
	if c != nil {
		c.Closer.Close()
	}
}

// ReadError returns the error of reading the file, as elffile.File.ReadError does.
func (c *Companion) ReadError() error {
	if err := c.File().ReadError(); err != nil {
		return fmt.Errorf("debug file %s: %w", c.Path, err)
	}
	return nil
}

// replaces reports whether an old .sframe may be replaced.
func (o *Options) replaces() bool { return o.Force || o.Update }

// Bounds of the memory of all workers, in bytes. Each has a table of all different programs of the file.
const (
	anyWorkers  = 96 << 20 // for any file
	workerShare = 4        // and one more for each 4 bytes of the file
	perWorker   = 2 << 20  // of each
	perProgram  = 48       // of each, for each program
)

// functionsPerWorker is the smallest number of functions for another worker: to start one takes about as long as it
// saves.
const functionsPerWorker = 1000

// workers returns how many workers share the work on a table of a file of the given size.
func (o *Options) workers(t *cfi.Table, size uint64) int {
	n := o.Workers
	if n <= 0 {
		n = min(runtime.GOMAXPROCS(0), t.Len()/functionsPerWorker)
	}
	most := (anyWorkers + size/workerShare) / (perWorker + perProgram*uint64(t.NumPrograms()))
	return max(1, min(n, t.Len(), int(min(most, math.MaxInt))))
}

// Share says whether FDEs may describe several functions or parts of one, and whether equal FRE lists are stored once.
// In relocatable objects each function has one FDE and one list: GNU ld 2.44 and 2.47 write a list for each function,
// but allocate less, and overwrite the section after .sframe.
type Share uint8

const (
	ShareAuto Share = iota // lists are shared in little-endian output only, which all readers can read
	ShareOn
	ShareOff // each function has one FDE and one list
)

var shareNames = [...]string{ShareAuto: "auto", ShareOn: "on", ShareOff: "off"}

func (s Share) String() string { return shareNames[s] }

// ParseShare returns the Share of the given name.
func ParseShare(name string) (Share, error) {
	if i := slices.Index(shareNames[:], name); i >= 0 {
		return Share(i), nil
	}
	return 0, fmt.Errorf("%q is not known; use auto, on or off", name)
}

// on reports whether lists are shared.
func (s Share) on(abi sframe.ABI) bool {
	return s == ShareOn || s == ShareAuto && abi.Order() == binary.LittleEndian
}
