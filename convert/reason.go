package convert

import (
	"debug/elf"
	"errors"
	"io"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/pack"
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
	Package     Reason = "package"
	NoRoom      Reason = "no-room"
	NoSFrame    Reason = "no-sframe"
	NotLinked   Reason = "not-linked" // of Check only
)

// Errors of files that are unchanged.
var (
	errCurrent   = errors.New("its .sframe is up to date")
	errNoRows    = errors.New("nothing of its CFI has a form in SFrame")
	errDebugOnly = errors.New("debug information that was split off, without the code that it is about")
	errDeb       = errors.New("this is a Debian package; use 'cfi2sframe pkg', or unpack it")
	errRPM       = errors.New("this is an RPM package; use 'cfi2sframe pkg', or unpack it")
	errTar       = errors.New("this is a tar archive or a container image; unpack it")
)

// A stage is when an error of a file is found.
type stage uint8

const (
	opening stage = iota // while the file is opened as what it should be
	reading              // later; then it is an ELF file
)

// An effect is what an error does without Options.SkipUnsupported. With it, all errors below leave the file unchanged.
type effect uint8

const (
	fails       effect = iota // the conversion fails
	keepsObject               // objects are unchanged
	keeps                     // the file is unchanged
)

// refusals has the reason for each error by which a file may be unchanged, and says in a few words what the reason is.
var refusals = []struct {
	err    error
	reason Reason
	stage  stage
	effect effect
	text   string
}{
	{elffile.ErrNotELF, NotELF, opening, fails, "not an ELF file"},
	{elffile.Err32Bit, Class32, opening, fails, "32-bit file"},
	{archive.ErrKind, ArchiveKind, opening, fails, "thin archive, or one of the BSD kind"},
	{errDeb, Package, opening, fails, "package, tar archive or container image"},
	{errRPM, Package, opening, fails, "package, tar archive or container image"},
	{errTar, Package, opening, fails, "package, tar archive or container image"},
	{errCurrent, Current, reading, keeps, ".sframe up to date"},
	{errNoRows, NoRows, reading, keeps, "CFI that has no form in SFrame"}, // ld takes an empty section for damaged
	{cfi.ErrNone, NoCFI, reading, keepsObject, "no CFI"},
	{ErrNoCode, NoCode, reading, keepsObject, "CFI that describes no code"},
	{elfwrite.ErrNone, NoSFrame, reading, keepsObject, "no .sframe"},
	{arch.ErrABI, Machine, reading, fails, "machine without an SFrame ABI"},
	{elfwrite.ErrNoRoom, NoRoom, reading, fails, "no room for more program headers"},
	{errDebugOnly, DebugOnly, reading, fails, "debug information without its program"},
	{nil, NotLinked, reading, fails, "neither a program nor a shared library"},
}

// Text says what the reason is, in a few words.
func (r Reason) Text() string {
	for _, refusal := range refusals {
		if refusal.reason == r {
			return refusal.text
		}
	}
	return ""
}

// kept returns why a file is unchanged, if err does that, and err otherwise. F is nil if the file could not be opened.
func (o *Options) kept(f *elffile.File, err error) (*Kept, error) {
	at := reading
	if f == nil {
		at = opening
	}
	for _, r := range refusals {
		if err != nil && errors.Is(err, r.err) && r.stage == at &&
			(o.SkipUnsupported || r.effect == keeps || r.effect == keepsObject && f.IsObject()) {
			return &Kept{Reason: r.reason, Why: err}, nil
		}
	}
	return nil, err
}

// packageError returns an error if a file is a package.
func packageError(r io.ReaderAt, size int64) error {
	kind, err := pack.KindOf(r, size)
	if err != nil {
		return outfile.Plain(err)
	}
	return [...]error{pack.Deb: errDeb, pack.RPM: errRPM, pack.Tar: errTar}[kind]
}

// debugOnly reports whether a linked file has headers of code, but no loaded bytes except notes.
func debugOnly(f *elffile.File) bool {
	code := false
	for i := range f.Sections {
		s := &f.Sections[i]
		switch {
		case !s.Alloc() || s.Size == 0:
		case !s.HasBytes():
			code = code || s.Flags&uint64(elf.SHF_EXECINSTR) != 0
		case elf.SectionType(s.Type) != elf.SHT_NOTE:
			return false
		}
	}
	return code && !f.IsObject()
}
