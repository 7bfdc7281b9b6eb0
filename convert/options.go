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

// DefaultVersion is the version written unless Options selects another. GNU as and ld 2.47 write no other version, and
// the Linux patch series reads no other.
const DefaultVersion = sframe.V3

// Options control the section. The zero value selects the default version and checks the result.
type Options struct {
	// The format of the section.
	Version   sframe.Version // version to write; 0 means DefaultVersion
	PCRel     bool           // each start address is relative to its own field (errata 1)
	Outermost bool           // rows for code without a caller (errata 2)
	NoPadding bool           // no rows for padding between functions
	NoPCMask  bool           // rows for each entry of a PLT instead of PC-mask FDEs
	Share     Share          // sharing of FRE lists
	Linux     Linux          // the Linux unwinder that reads the section: no rows that it would reject or never use

	// The sources of rows.
	Source   cfi.Source // sections from which CFI is loaded
	Debug    Opener     // opens the debug file, for .debug_frame and symbols missing from the file; or nil
	Infer    bool       // infer rows from instructions for code without CFI
	Progress Progress   // called while rows are inferred, or nil

	// What to do with the old section, and where the new one is. Without Force and Update, an old .sframe is an error.
	Force    bool   // replace an old .sframe, and move appended data (see ErrAppended)
	Update   bool   // replace an old .sframe, unless it is up to date
	Reserved string // symbols START:END around the bytes that a linker script reserves for .sframe, or ""

	// The work. The result does not depend on it.
	NoVerify bool // do not check the result
	Workers  int  // maximum number of threads; 0 means the number of processors, or fewer for small files
}

// An Opener opens a file that belongs to f. It may return nil if there is none.
type Opener func(f *elffile.File) (*Companion, error)

// A Companion is an open file that belongs to another file: its debug file, or the file with its detached .sframe. It
// may be nil.
type Companion struct {
	ELF    *elffile.File
	Path   string // for messages
	Closer io.Closer
}

// open calls an Opener, which may be nil.
func (o Opener) open(f *elffile.File) (*Companion, error) {
	if o == nil {
		return nil, nil
	}
	return o(f)
}

// File returns the ELF file, or nil if c is nil.
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

// ReadError returns the error from reading the file, like elffile.File.ReadError.
func (c *Companion) ReadError() error {
	if err := c.File().ReadError(); err != nil {
		return fmt.Errorf("debug file %s: %w", c.Path, err)
	}
	return nil
}

// mayReplace reports whether an old .sframe may be replaced.
func (o *Options) mayReplace() bool { return o.Force || o.Update }

// Bounds on the memory of all workers in bytes. Each worker has a table of all distinct CFI programs in the file.
const (
	anyWorkers  = 96 << 20 // total for any file
	workerShare = 4        // one additional byte per 4 bytes of the file
	perWorker   = 2 << 20  // per worker
	perProgram  = 48       // per worker and program
)

// functionsPerWorker is the minimum number of functions per worker: with fewer, starting a worker takes about as much
// time as the worker saves.
const functionsPerWorker = 1000

// workers returns the number of workers that process table t of a file of the given size.
func (o *Options) workers(t *cfi.Table, size uint64) int {
	n := o.Workers
	if n <= 0 {
		n = min(runtime.GOMAXPROCS(0), t.Len()/functionsPerWorker)
	}
	most := (anyWorkers + size/workerShare) / (perWorker + perProgram*uint64(t.NumPrograms()))
	return max(1, min(n, t.Len(), int(min(most, math.MaxInt))))
}

// Share controls whether FDEs may describe several functions or parts of them, and whether equal FRE lists are stored
// once. In relocatable objects, each function has one FDE and one list, because GNU ld 2.44 and 2.47 write a copy of a
// shared list per function without allocating space for it, and so overwrite the section after .sframe.
type Share uint8

const (
	ShareAuto Share = iota // share lists if output is little-endian, because only then do all readers support it
	ShareOn
	ShareOff // each function has one FDE and one list
)

var shareNames = [...]string{ShareAuto: "auto", ShareOn: "on", ShareOff: "off"}

func (s Share) String() string { return shareNames[s] }

// ParseShare returns the Share with the given name.
func ParseShare(name string) (Share, error) {
	if i := slices.Index(shareNames[:], name); i >= 0 {
		return Share(i), nil
	}
	return 0, fmt.Errorf("%q is not known; use auto, on or off", name)
}

// enabled reports whether FRE lists are shared in a section for abi.
func (s Share) enabled(abi sframe.ABI) bool {
	return s == ShareOn || s == ShareAuto && abi.Order() == binary.LittleEndian
}
