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

// A Kept is an unchanged file or archive member.
type Kept struct {
	Member string // name in the archive, or "" for the file itself
	Reason Reason
	Why    error // with details
}

// A Reason says why a file or archive member is unchanged. The names are stable.
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
	NotLinked   Reason = "not-linked" // for Detach and Attach
	Exists      Reason = "exists"     // for Detach and Attach
	NoBuildID   Reason = "no-build-id"
	Compressed  Reason = "compressed"
	Appended    Reason = "appended-data"
)

// Errors for unchanged files.
var (
	errCurrent   = errors.New("its .sframe is up to date")
	errNoRows    = errors.New("none of its CFI can be expressed in SFrame")
	errTooFar    = errors.New("no code is within 2 GiB of .sframe")
	ErrHasSFrame = errors.New("it already has an .sframe")
	errDetached  = errors.New("no .sframe for its build-id in the directory")
	errDebugOnly = errors.New("it has debug information, but no code")
	errNotLinked = errors.New("it is neither a program nor a shared library")
	// ErrCompressed is returned by callers, which know the file name.
	ErrCompressed = errors.New("is a compressed kernel module; unpack it")
	// ErrAppended is returned for self-extracting archives and similar programs, unless Options.Force is set.
	ErrAppended  = errors.New("appended data, which its program may find by their offset")
	errNoBuildID = errors.New("it has no build-id to derive a file name from; use -o FILE")
)

// A condition says when an error leaves a file unchanged. Otherwise the conversion fails.
type condition uint8

const (
	opening condition = iota // if the error occurs when the file is opened, and Run.SkipUnsupported is set
	reading                  // if the error occurs later, and Run.SkipUnsupported is set
	objects                  // if the error occurs later, and Run.SkipUnsupported is set or the file is an object
	always                   // if the error occurs later
)

// refusals lists the errors that may leave a file unchanged, with the reason and a short text.
var refusals = []struct {
	err    error
	reason Reason
	when   condition
	text   string
}{
	{elffile.ErrNotELF, NotELF, opening, "not an ELF file"},
	{elffile.Err32Bit, Class32, opening, "32-bit file"},
	{ErrCompressed, Compressed, opening, "compressed kernel module; unpack it"},
	{archive.ErrKind, ArchiveKind, opening, "thin archive or BSD archive"},
	{errCurrent, Current, always, ".sframe up to date"},
	{errNoRows, NoRows, always, "CFI that cannot be expressed in SFrame"}, // ld rejects an empty section
	{errTooFar, NoRows, reading, "CFI that cannot be expressed in SFrame"},
	{cfi.ErrNone, NoCFI, objects, "no CFI"},
	{ErrNoCode, NoCode, objects, "CFI that covers no code"},
	{elfwrite.ErrNone, NoSFrame, objects, "no .sframe"},
	{arch.ErrABI, Machine, reading, "machine without an SFrame ABI"},
	{elfwrite.ErrNoRoom, NoRoom, reading, "no room for more program headers"},
	{ErrAppended, Appended, reading, "appended data"},
	{errDebugOnly, DebugOnly, reading, "debug information without code"},
	{errNotLinked, NotLinked, reading, "neither a program nor a shared library"},
	{errNoBuildID, NoBuildID, reading, "no build-id"},
	{errDetached, NoSFrame, reading, "no .sframe"},
	{ErrHasSFrame, Exists, reading, "existing .sframe"},
}

// Text returns a short text for the reason.
func (r Reason) Text() string {
	for _, refusal := range refusals {
		if refusal.reason == r {
			return refusal.text
		}
	}
	return ""
}

// ReasonOf returns the reason for an error, or "".
func ReasonOf(err error) Reason {
	for _, r := range refusals {
		if err != nil && errors.Is(err, r.err) && !outfile.OfMachine(err) {
			return r.reason
		}
	}
	return ""
}

// keep returns a Kept if err leaves the file unchanged, and err otherwise. If the file could not be opened, f is nil.
func (c *conversion) keep(f *elffile.File, err error) (*Kept, error) {
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
