package convert

import (
	"errors"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
)

// A Kept is a file, or a member of an archive, that is unchanged.
type Kept struct {
	Member string // of an archive, or "" for the file itself
	Reason Reason
	Why    error // with details
}

// A Reason says why a file, or a member of an archive, is unchanged. The names are stable.
type Reason string

const (
	Current     Reason = "current"
	NotELF      Reason = "not-elf"
	Class32     Reason = "32-bit"
	Machine     Reason = "machine"
	NoCFI       Reason = "no-cfi"
	NoCode      Reason = "no-code"
	NoRows      Reason = "no-rows"
	DebugOnly   Reason = "debug-only"
	ArchiveKind Reason = "archive-kind"
	NoRoom      Reason = "no-room"
	NoSFrame    Reason = "no-sframe"
	NotLinked   Reason = "not-linked" // of Detach and Attach
	Exists      Reason = "exists"     // of Detach and Attach
	NoBuildID   Reason = "no-build-id"
	Compressed  Reason = "compressed"
)

// Errors of files that are unchanged.
var (
	errCurrent   = errors.New("its .sframe is up to date")
	errNoRows    = errors.New("nothing of its CFI has a form in SFrame")
	ErrHasSFrame = errors.New("it has an .sframe already")
	errDetached  = errors.New("the directory has no .sframe for its build-id")
	errDebugOnly = errors.New("it has debug information, but no code")
	errNotLinked = errors.New("it is neither a program nor a shared library")
	// ErrCompressed is that of a caller, which knows the name of the file.
	ErrCompressed = errors.New("is a compressed kernel module; unpack it")
	errNoBuildID  = errors.New("it has no build-id, by which a directory has .sframe; use a file as output")
)

// A condition says when an error leaves a file unchanged. The conversion fails otherwise.
type condition uint8

const (
	opening condition = iota // it is found when the file is opened, and Run.SkipUnsupported is set
	reading                  // it is found later, and Run.SkipUnsupported is set
	objects                  // as reading, or the file is an object
	always                   // it is found later
)

// refusals has the reason for each error by which a file may be unchanged, and the reason in a few words.
var refusals = []struct {
	err    error
	reason Reason
	when   condition
	text   string
}{
	{elffile.ErrNotELF, NotELF, opening, "not an ELF file"},
	{elffile.Err32Bit, Class32, opening, "32-bit file"},
	{ErrCompressed, Compressed, opening, "compressed kernel module; unpack it"},
	{archive.ErrKind, ArchiveKind, opening, "thin archive, or one of the BSD kind"},
	{errCurrent, Current, always, ".sframe up to date"},
	{errNoRows, NoRows, always, "CFI that has no form in SFrame"}, // ld takes an empty section for damaged
	{cfi.ErrNone, NoCFI, objects, "no CFI"},
	{ErrNoCode, NoCode, objects, "CFI that describes no code"},
	{elfwrite.ErrNone, NoSFrame, objects, "no .sframe"},
	{arch.ErrABI, Machine, reading, "machine without an SFrame ABI"},
	{elfwrite.ErrNoRoom, NoRoom, reading, "no room for more program headers"},
	{errDebugOnly, DebugOnly, reading, "debug information without code"},
	{errNotLinked, NotLinked, reading, "neither a program nor a shared library"},
	{errNoBuildID, NoBuildID, reading, "no build-id"},
	{errDetached, NoSFrame, reading, "no .sframe"},
	{ErrHasSFrame, Exists, reading, "an .sframe already"},
}

// Text returns the reason in a few words.
func (r Reason) Text() string {
	for _, refusal := range refusals {
		if refusal.reason == r {
			return refusal.text
		}
	}
	return ""
}

// ReasonOf returns the reason that an error is, or "".
func ReasonOf(err error) Reason {
	for _, r := range refusals {
		if err != nil && errors.Is(err, r.err) && !outfile.OfMachine(err) {
			return r.reason
		}
	}
	return ""
}

// kept returns why a file is unchanged, if err is such a reason, or err. f is nil if the file could not be opened.
func (c *conversion) kept(f *elffile.File, err error) (*Kept, error) {
	for _, r := range refusals {
		if err == nil || outfile.OfMachine(err) || !errors.Is(err, r.err) || (f == nil) != (r.when == opening) {
			continue
		}
		if c.job.SkipUnsupported || r.when == always || r.when == objects && f.IsObject() {
			return &Kept{Reason: r.reason, Why: err}, nil
		}
	}
	return nil, err
}
