package convert

import (
	"encoding/binary"
	"fmt"
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

// Options say how to convert. The zero value writes the default version, and checks the result.
type Options struct {
	Version   sframe.Version // to write; 0 stands for DefaultVersion
	Source    cfi.Source     // where the CFI comes from
	PCRel     bool           // start addresses count from their own field (errata 1)
	Outermost bool           // rows for code without a caller (errata 2)
	Force     bool           // replace an old .sframe
	Update    bool           // replace an old .sframe, unless it is up to date
	// SkipUnsupported leaves unsupported files unchanged, which is no error: see Kept.
	SkipUnsupported bool
	// Require makes Check skip files that need no .sframe: unsupported ones, and those that are neither programs nor
	// shared libraries.
	Require bool
	Remove  bool // remove .sframe instead
	Detach  bool // write a file with .sframe and the build-id instead: see elfwrite.PlanDetached
	BuildID bool // with Detach, files without a build-id are not supported
	Attach  bool // add the section of SFrame instead
	// SFrame is the file with the detached .sframe, or a directory that has it by build-id; or "".
	SFrame    string
	DryRun    bool  // translate and check, but write nothing
	NoVerify  bool  // do not check the result
	NoPadding bool  // do not describe the padding between functions
	NoPCMask  bool  // describe PLTs with rows for each entry, not with PC-mask FDEs
	Share     Share // of FRE lists
	// Workers bounds the threads. 0 stands for the number of processors, and fewer for small files. The result does not
	// depend on it.
	Workers int
	// DebugFile has the .debug_frame and the names that are not in the file. It is a path; "auto" for the file that
	// .note.gnu.build-id or .gnu_debuglink leads to, if any; or "" for none.
	DebugFile string
	Path      string // of the file, which "auto" needs; or ""
	// Linux is the part of Linux that reads the section. In a kernel, it limits what is written.
	Linux Linux
	// Formats are those that the reader of the section reads; nil stands for any. Only Check uses them.
	Formats []Format
	// Reserved has the symbols START:END of bytes in a linked file that a linker script reserves for the section.
	Reserved string
	// Starting, if not nil, is called before work on a file, and on each member of an archive, begins: a program can
	// prepare its heap for large ones.
	Starting func(Work)
	// Progress, if not nil, is called with the finished and all steps of a linked file, or members of an archive.
	Progress func(done, total int)
	// Report, if not nil, is called with the result for each ELF file that was translated or compared, while it is open.
	// An error of Report is that of the conversion.
	Report func(*Details) error
	// Budget is that of the input that contains the file; nil stands for one of the file.
	Budget *elffile.Budget
}

// Work is a file, or a member of an archive, that is converted next. Sizes are in bytes.
type Work struct {
	Size    uint64 // of the file, or of the member of an archive
	CFI     uint64 // of its CFI in the file; 0 for an archive
	Archive bool   // an archive, whose members follow
}

// progress calls o.Progress, if it is set.
func (o *Options) progress(done, total int) {
	if o.Progress != nil {
		o.Progress(done, total)
	}
}

// starting calls o.Starting, if it is set.
func (o *Options) starting(w Work) {
	if o.Starting != nil {
		o.Starting(w)
	}
}

// complete sets the defaults for a file of a size in bytes.
func (o *Options) complete(size int64) {
	if o.Version == 0 {
		o.Version = DefaultVersion
	}
	if o.Budget == nil {
		o.Budget = elffile.NewBudget(size)
	}
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
