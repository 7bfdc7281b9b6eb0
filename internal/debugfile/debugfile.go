// Package debugfile finds the file that the debug information of another one was split
// off to, by build-id or .gnu_debuglink, and makes sure that both belong together.
package debugfile

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"cfi2sframe/elffile"
)

// Auto stands for the file that is found by build-id or .gnu_debuglink, if there is one.
const Auto = "auto"

// Root is where systems have their debug files (GDB manual, "Debugging Information in
// Separate Files").
var Root = "/usr/lib/debug"

// A File is a debug file. A nil one stands for none.
type File struct {
	r    *os.File
	f    *elffile.File
	path string
}

// Open opens the debug file of the ELF file f, which is at path. The name is that of the
// file, Auto, or "" for none. It is an error if a named file does not belong to f; what
// Auto finds and does not belong to f is passed over, and so is what the user must not read. A
// file that cannot be read for another reason is an error: it may be the one.
func Open(name, path string, f *elffile.File) (*File, error) {
	if name == Auto {
		d, _, err := Find(path, f)
		return d, err
	}
	if name == "" {
		return nil, nil
	}
	if f.IsObject() { // addresses in both need not agree
		return nil, fmt.Errorf("debug file %s: it is not used, as this is a relocatable object; "+
			"convert the object before its debug information is split off", name)
	}
	m, err := marksOf(f)
	if err != nil {
		return nil, err
	}
	d, err := m.open(name)
	if err != nil {
		return nil, fmt.Errorf("debug file %s: %w", name, err)
	}
	return d, nil
}

// Find is Open for Auto. If it finds no file, it also returns which ones it has passed over, and why.
func Find(path string, f *elffile.File) (d *File, passedOver []error, err error) {
	if f.IsObject() {
		return nil, nil, nil
	}
	m, err := marksOf(f)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range candidates(path, m.id, m.link) {
		d, err := m.open(name)
		if err == nil {
			return d, nil, nil
		}
		err = fmt.Errorf("debug file %s: %w", name, err)
		if unreadable(err) {
			return nil, nil, err
		}
		if !slices.ContainsFunc(missing, func(no syscall.Errno) bool { return errors.Is(err, no) }) {
			passedOver = append(passedOver, err)
		}
	}
	return nil, passedOver, nil
}

// IsFound reports whether the file that info describes is the debug file that Auto stands for, of the ELF file at path.
func IsFound(info fs.FileInfo, path string) bool {
	own, err := open(path)
	if err != nil {
		own.Close()
		return false
	}
	defer own.Close()
	m, err := marksOf(own.f)
	if err != nil || own.f.IsObject() || !slices.ContainsFunc(candidates(path, m.id, m.link), func(name string) bool {
		other, err := os.Stat(name)
		return err == nil && os.SameFile(info, other)
	}) {
		return false // before anything else is read
	}
	d, _, err := Find(path, own.f)
	if d == nil || err != nil {
		return false
	}
	defer d.Close()
	other, err := d.r.Stat()
	return err == nil && os.SameFile(info, other)
}

// marks are what a file has by which its debug file is known.
type marks struct {
	f    *elffile.File
	id   []byte
	link string
	sum  uint32
}

func marksOf(f *elffile.File) (m marks, err error) {
	m.f = f
	if m.id, err = buildID(f); err != nil {
		return m, err
	}
	m.link, m.sum, err = debugLink(f)
	return m, err
}

// open opens a debug file that belongs to the file.
func (m *marks) open(name string) (*File, error) {
	d, err := open(name)
	if err == nil {
		err = d.belongs(m.f, m.id, m.sum, m.link != "")
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// missing are the errors of the system that say that there is no file at a path, and denied that there is none for this user.
var (
	missing = []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG}
	denied  = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENXIO}
)

// unreadable reports whether an error is one of the system, by which it did not give what is in
// a file that there is.
func unreadable(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && !slices.Contains(missing, number) && !slices.Contains(denied, number) && !errors.Is(err, fs.ErrNotExist)
}

// candidates are the paths at which a debug file may be.
func candidates(path string, id []byte, link string) []string {
	var names []string
	if len(id) > 1 {
		s := hex.EncodeToString(id)
		names = append(names, filepath.Join(Root, ".build-id", s[:2], s[2:]+".debug"))
	}
	if link == "" || filepath.Base(link) != link {
		return names
	}
	dir := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dir = filepath.Dir(real)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return append(names, filepath.Join(dir, link), filepath.Join(dir, ".debug", link), filepath.Join(Root, dir, link))
}

func open(path string) (*File, error) {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not make it wait
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, err
	}
	d := &File{r: r, path: path}
	info, err := r.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("a regular file was expected")
	}
	if err == nil {
		d.f, err = elffile.New(r, info.Size())
	}
	return d, err
}

// Close closes the file.
func (d *File) Close() {
	if d != nil {
		d.r.Close()
	}
}

// File returns the ELF file, or nil.
func (d *File) File() *elffile.File {
	if d == nil {
		return nil
	}
	return d.f
}

// Path returns where the file is, or "".
func (d *File) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// maxSummed is the largest debug file, in bytes, of which a checksum is computed: files
// with holes can be larger than anything that there is.
const maxSummed = 4 << 30

// belongs returns an error unless the debug file is that of f: by the build-ids, by the
// checksum in .gnu_debuglink, or else by all sections of code.
func (d *File) belongs(f *elffile.File, id []byte, sum uint32, linked bool) error {
	if d.f.Machine != f.Machine || d.f.Order != f.Order {
		return fmt.Errorf("it is for machine %v, %v", elf.Machine(d.f.Machine), d.f.Order)
	}
	if d.f.IsObject() {
		return errors.New("it is a relocatable object; the debug file of a linked file was expected")
	}
	if err := d.sameCode(f); err != nil {
		return err
	}
	own, err := buildID(d.f)
	if err != nil {
		return err
	}
	if len(id) > 0 && len(own) > 0 {
		if !bytes.Equal(id, own) {
			return fmt.Errorf("it is of another build: its build-id is %x, and %x was expected", own, id)
		}
		return nil
	}
	if !linked {
		return nil
	}
	if d.f.Size > maxSummed {
		return fmt.Errorf("it has %d bytes, and no build-id; to compute a checksum of more than %d is not accepted", d.f.Size, uint64(maxSummed))
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(d.f.Contents(), 0, int64(d.f.Size))); err != nil {
		return err
	}
	if h.Sum32() != sum {
		return fmt.Errorf("its checksum is %#08x, and .gnu_debuglink says %#08x", h.Sum32(), sum)
	}
	return nil
}

// sameCode returns an error unless both files have the same sections of code at the same
// addresses: what the debug file says of addresses has to hold.
func (d *File) sameCode(f *elffile.File) error {
	code := func(f *elffile.File) []elf.Section64 {
		var out []elf.Section64
		for i := range f.Sections {
			if s := &f.Sections[i]; s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 {
				out = append(out, elf.Section64{Addr: s.Addr, Size: s.Size})
			}
		}
		return out
	}
	a, b := code(f), code(d.f)
	if len(a) == 0 {
		return nil // no section headers to compare with
	}
	if len(a) != len(b) {
		return fmt.Errorf("it has %d sections of code, and %d were expected", len(b), len(a))
	}
	for i := range a {
		if a[i] != b[i] {
			return fmt.Errorf("its code at %#x, %#x bytes, is not that of the file at %#x, %#x bytes", b[i].Addr, b[i].Size, a[i].Addr, a[i].Size)
		}
	}
	return nil
}

// maxNotes bounds the bytes of the notes that are looked through. A build-id is in a
// section of its own.
const maxNotes = 1 << 20

// noteBuildID is NT_GNU_BUILD_ID, the type of the note that holds the build-id.
const noteBuildID = 3

// buildID returns the build-id of f, or nil.
func buildID(f *elffile.File) ([]byte, error) {
	room := uint64(maxNotes)
	for i := range f.Sections {
		s := &f.Sections[i]
		if elf.SectionType(s.Type) != elf.SHT_NOTE || s.Size > room {
			continue
		}
		room -= s.Size
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		if id := findBuildID(b, f, s.Addralign); id != nil {
			return id, nil
		}
	}
	if len(f.Sections) > 0 {
		return nil, nil
	}
	for i := range f.Progs {
		h := &f.Progs[i]
		if elf.ProgType(h.Type) != elf.PT_NOTE || h.Filesz > room {
			continue
		}
		room -= h.Filesz
		b, err := f.ReadAt("PT_NOTE", h.Off, h.Filesz)
		if err != nil {
			return nil, err
		}
		if id := findBuildID(b, f, h.Align); id != nil {
			return id, nil
		}
	}
	return nil, nil
}

// findBuildID looks for the note among the notes in b (ELF gABI, "Note Section").
func findBuildID(b []byte, f *elffile.File, align uint64) []byte {
	if align != 8 {
		align = 4
	}
	round := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		name, desc, typ := uint64(f.Order.Uint32(b)), uint64(f.Order.Uint32(b[4:])), f.Order.Uint32(b[8:])
		at := round(12 + name)
		end := at + desc
		if end > uint64(len(b)) {
			return nil
		}
		if typ == noteBuildID && name == 4 && string(b[12:16]) == "GNU\x00" && desc > 0 {
			return b[at:end]
		}
		b = b[min(round(end), uint64(len(b))):]
	}
	return nil
}

// debugLink returns the file name and the checksum in .gnu_debuglink, or "".
func debugLink(f *elffile.File) (string, uint32, error) {
	s := f.Section(".gnu_debuglink")
	if s == nil || !s.HasBytes() {
		return "", 0, nil
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return "", 0, err
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(b) {
		return "", 0, fmt.Errorf("section .gnu_debuglink at file offset %#x: a file name and a checksum behind it were expected", s.Off)
	}
	return string(b[:end]), f.Order.Uint32(b[at:]), nil
}
