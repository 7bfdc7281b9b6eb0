package convert

import (
	"cmp"
	"debug/elf"
	"errors"
	"io"
	"slices"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/pack"
)

// A Kept is a file, or a member of an archive, that stayed as it was. Where that is the file which was to be replaced, it
// is not touched.
type Kept struct {
	Member string // of an archive, or "" for the file itself
	Reason Reason
	Why    error // the same with all that there is to say
}

// A Reason says why a file, or a member of an archive, stayed as it was. Objects without CFI and members that are not ELF
// files always do; of other files it is an error, unless Options.SkipUnsupported is set.
type Reason string

// The names are stable.
const (
	Current     Reason = "current"      // it has an .sframe that is right, complete and of the asked format
	NotELF      Reason = "not-elf"      // neither an ELF file nor an archive, or an archive's member
	Class32     Reason = "32-bit"       // a 32-bit file
	Machine     Reason = "machine"      // a machine without an SFrame ABI
	NoCFI       Reason = "no-cfi"       // no call frame information
	NoCode      Reason = "no-code"      // call frame information that describes no code
	NoRows      Reason = "no-rows"      // an object of whose code SFrame can say nothing
	DebugOnly   Reason = "debug-only"   // debug information that was split off
	ArchiveKind Reason = "archive-kind" // a thin archive, or one of the BSD kind
	Package     Reason = "package"      // a package, a tar archive or a container image
	NoRoom      Reason = "no-room"      // no room for more program headers
	NoSFrame    Reason = "no-sframe"    // no .sframe that could be removed
	NotLinked   Reason = "not-linked"   // neither a program nor a shared library, of Check only
)

// texts say what the reasons are.
var texts = map[Reason]string{
	Current:     ".sframe right and complete already",
	NotELF:      "not an ELF file",
	Class32:     "32-bit file",
	Machine:     "machine without an SFrame ABI",
	NoCFI:       "no CFI",
	NoCode:      "CFI that describes no code",
	NoRows:      "CFI that has no form in SFrame",
	DebugOnly:   "debug information without its program",
	ArchiveKind: "thin archive, or one of the BSD kind",
	Package:     "package, tar archive or container image",
	NoRoom:      "no room for more program headers",
	NoSFrame:    "no .sframe",
	NotLinked:   "neither a program nor a shared library",
}

// Text says what the reason is, in a few words.
func (r Reason) Text() string { return texts[r] }

// A cause is an error by which a file may stay as it is.
type cause struct {
	err    error
	reason Reason
	object bool // also without SkipUnsupported, for an object
}

// foreign are those of files that are not read as what they should be, and causes those of ELF files.
var (
	foreign = []cause{
		{elffile.ErrNotELF, NotELF, false},
		{elffile.Err32Bit, Class32, false},
		{archive.ErrKind, ArchiveKind, false},
		{errDeb, Package, false},
		{errRPM, Package, false},
		{errTar, Package, false},
	}
	causes = []cause{
		{cfi.ErrNone, NoCFI, true},
		{ErrNoCode, NoCode, true},
		{elfwrite.ErrNone, NoSFrame, true},
		{arch.ErrABI, Machine, false},
		{elfwrite.ErrNoRoom, NoRoom, false},
		{errDebugOnly, DebugOnly, false},
	}
)

// errCurrent is why a file stays as it is whose .sframe needs no update.
var errCurrent = errors.New("its .sframe is right, complete and of this format")

// errNoRows is why an object stays as it is whose section would be empty: ld takes that for a damaged one.
var errNoRows = errors.New("nothing of its CFI has a form in SFrame")

// errDebugOnly is why a file of debug information stays as it is.
var errDebugOnly = errors.New("debug information that was split off, without the code that it is about")

// Errors of files that have ELF files in them.
var (
	errDeb = errors.New("this is a Debian package; use 'cfi2sframe pkg', or unpack it")
	errRPM = errors.New("this is an RPM package; use 'cfi2sframe pkg', or unpack it")
	errTar = errors.New("this is a tar archive or a container image; unpack it")
)

// packageError returns an error if a file is a package.
func packageError(r io.ReaderAt, size int64) error {
	kind, err := pack.KindOf(r, size)
	if err != nil {
		return outfile.Plain(err)
	}
	return [...]error{pack.Deb: errDeb, pack.RPM: errRPM, pack.Tar: errTar}[kind]
}

// openELF reads the headers of an ELF file.
func openELF(budget *elffile.Budget, r io.ReaderAt, size int64) (*elffile.File, error) {
	f, err := elffile.NewIn(budget, r, size)
	if errors.Is(err, elffile.ErrNotELF) {
		err = cmp.Or(packageError(r, size), err)
	}
	return f, err
}

// A kept is the error of a file that stays as it is.
type kept struct{ Kept }

func (k *kept) Error() string { return k.Why.Error() }

// keep makes a kept of an error, if the file stays as it is because of that. F is the file, or nil if the error is that it
// is none.
func (o *Options) keep(f *elffile.File, err error) error {
	if err == nil {
		return nil
	}
	list := foreign
	if f != nil {
		list = causes
	}
	for _, r := range list {
		if errors.Is(err, r.err) && (o.SkipUnsupported || r.object && f.IsObject()) {
			return &kept{Kept{Reason: r.reason, Why: err}}
		}
	}
	return err
}

// debugOnly reports whether a file is linked, and has no byte of what is loaded but notes, not of its code either.
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

// hasCode reports whether there are bytes of code in a file.
func hasCode(f *elffile.File) bool {
	return slices.ContainsFunc(f.Sections, func(s elffile.Section) bool {
		return s.Alloc() && s.HasBytes() && s.Size > 0 && s.Flags&uint64(elf.SHF_EXECINSTR) != 0
	})
}
