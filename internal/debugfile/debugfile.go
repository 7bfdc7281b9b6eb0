// Package debugfile finds the debug file of an ELF file by build-id or .gnu_debuglink, and checks that they match.
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

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/outfile"
)

// Auto is the name for a debug file that is found by build-id or .gnu_debuglink.
const Auto = "auto"

// Root is the global directory of debug files (GDB manual, "Debugging Information in Separate Files").
var Root = "/usr/lib/debug"

// Open opens the debug file of the ELF file f at path. The name is a path, Auto, or "" for no debug file. A named file
// that does not match f is an error. Auto skips files that do not match or that the user may not read; other read
// errors are returned because the file might match.
func Open(name, path string, f *elffile.File) (*convert.Companion, error) {
	if name == Auto {
		return find(path, f)
	}
	if name == "" {
		return nil, nil
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

// Opener returns a function that calls Open for the ELF file at path.
func Opener(name, path string) convert.Opener {
	return func(f *elffile.File) (*convert.Companion, error) { return Open(name, path, f) }
}

// find returns the debug file that Auto names, or nil.
func find(path string, f *elffile.File) (*convert.Companion, error) {
	m, err := marksOf(f)
	if err != nil {
		return nil, err
	}
	for _, name := range m.candidates(path) {
		d, err := m.open(name)
		if err == nil {
			return d, nil
		}
		if outfile.OfMachine(err) {
			return nil, fmt.Errorf("debug file %s: %w", name, err)
		}
	}
	return nil, nil
}

// IsFound reports whether info describes the file that Auto finds for the ELF file at path.
func IsFound(info fs.FileInfo, path string) bool {
	return sameAsFound(info, path, Opener(Auto, path))
}

// IsSFrame reports whether info describes the file that OpenSFrame opens if it is called with this name and the ELF
// file at path.
func IsSFrame(info fs.FileInfo, name, path string) bool {
	if named, err := os.Stat(name); err == nil && os.SameFile(info, named) {
		return true // even if the file is damaged
	}
	return sameAsFound(info, path, func(f *elffile.File) (*convert.Companion, error) { return OpenSFrame(name, f) })
}

// sameAsFound reports whether info describes the file that find returns for the ELF file at path.
func sameAsFound(info fs.FileInfo, path string, find func(f *elffile.File) (*convert.Companion, error)) bool {
	own, err := open(path)
	if err != nil {
		return false
	}
	defer own.Close()
	d, err := find(own.ELF)
	if d == nil || err != nil {
		return false
	}
	defer d.Close()
	found, err := os.Stat(d.Path)
	return err == nil && os.SameFile(info, found)
}

// marks holds the build-id and debug link of f, which identify its debug file.
type marks struct {
	f    *elffile.File
	id   []byte // build-id, or nil
	link link
}

func marksOf(f *elffile.File) (m marks, err error) {
	m.f = f
	if m.id, _, err = f.BuildID(); err != nil {
		return m, err
	}
	m.link, err = linkOf(f)
	return m, err
}

// open opens the debug file of the given name, and checks it.
func (m *marks) open(name string) (*convert.Companion, error) {
	d, err := open(name)
	if err != nil {
		return nil, err
	}
	if err := m.check(d.ELF); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// candidates returns the possible paths of the debug file of the ELF file at path.
func (m *marks) candidates(path string) []string {
	var names []string
	if len(m.id) >= MinBuildID {
		names = append(names, byBuildID(Root, m.id, ".debug"))
	}
	link := m.link.name
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

// MinBuildID is the minimum size of a build-id in bytes: its first byte names a directory, and the rest a file.
const MinBuildID = 2

// byBuildID returns the path of the file for a build-id in a directory.
func byBuildID(dir string, id []byte, suffix string) string {
	s := hex.EncodeToString(id)
	return filepath.Join(Store(dir), s[:2], s[2:]+suffix)
}

// Store returns the directory below dir that contains the files named by build-id.
func Store(dir string) string { return filepath.Join(dir, ".build-id") }

// SFramePath returns the path of the detached .sframe for a build-id in a directory.
func SFramePath(dir string, id []byte) string { return byBuildID(dir, id, ".sframe") }

// OpenSFrame opens the detached .sframe of f. If name is a directory, OpenSFrame looks for a file named by f's build-id
// there, and returns nil if there is none.
func OpenSFrame(name string, f *elffile.File) (*convert.Companion, error) {
	id, _, err := f.BuildID()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if len(id) < MinBuildID {
			return nil, nil
		}
		name = SFramePath(name, id)
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	d, err := (&marks{f: f, id: id}).open(name)
	if err != nil {
		return nil, fmt.Errorf("detached .sframe %s: %w", name, err)
	}
	return d, nil
}

func open(path string) (*convert.Companion, error) {
	r, info, err := outfile.OpenRegular(path)
	if err != nil {
		return nil, outfile.Plain(err)
	}
	f, err := elffile.New(r, info.Size())
	if err != nil {
		r.Close()
		return nil, err
	}
	return &convert.Companion{ELF: f, Path: path, Closer: r}, nil
}

// maxSummed is the maximum size in bytes of a file to checksum. A huge sparse file would take too long.
const maxSummed = 4 << 30

// check returns an error unless d matches by build-id or by the checksum in .gnu_debuglink. If the program has neither,
// check compares only the code sections.
func (m *marks) check(d *elffile.File) error {
	if d.Machine != m.f.Machine || d.Order != m.f.Order {
		return fmt.Errorf("it belongs to a different program: it is for machine %v, %v",
			elf.Machine(d.Machine), d.Order)
	}
	if d.IsObject() != m.f.IsObject() {
		return errors.New("of the file and its debug file, only one is a relocatable object")
	}
	if err := sameCode(m.f, d); err != nil {
		return err
	}
	id, _, err := d.BuildID()
	if err != nil {
		return err
	}
	if len(m.id) > 0 && len(id) > 0 {
		if !bytes.Equal(m.id, id) {
			return fmt.Errorf("it belongs to a different build: its build-id is %x, not %x", id, m.id)
		}
		return nil
	}
	switch {
	case m.link.name == "" && d.IsObject():
		return errors.New("relocatable objects with neither a build-id nor .gnu_debuglink cannot have a debug file; " +
			"convert the object before its debug information is split off")
	case m.link.name == "":
		return nil
	}
	if d.Size > maxSummed {
		return fmt.Errorf("it has no build-id, and its %d bytes exceed the checksum limit of %d",
			d.Size, uint64(maxSummed))
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(d.Contents(), 0, int64(d.Size))); err != nil {
		return err
	}
	if h.Sum32() != m.link.sum {
		return fmt.Errorf("it belongs to a different build: its checksum is %#08x, not %#08x as in .gnu_debuglink",
			h.Sum32(), m.link.sum)
	}
	return nil
}

// sameCode returns an error unless f and d have the same code sections, so that addresses in d are valid for f. For
// relocatable objects, it sets the addresses of the sections in d.
func sameCode(f, d *elffile.File) error {
	notCode := func(s elffile.Section) bool { return !s.Alloc() || s.Flags&uint64(elf.SHF_EXECINSTR) == 0 }
	a := slices.DeleteFunc(slices.Clone(f.Sections), notCode)
	b := slices.DeleteFunc(slices.Clone(d.Sections), notCode)
	if len(a) == 0 && !f.IsObject() {
		return nil // without section headers
	}
	if len(a) != len(b) {
		return fmt.Errorf("it belongs to a different program: it has %d code sections, not %d", len(b), len(a))
	}
	for i := range a {
		if a[i].Addr != b[i].Addr || a[i].Size != b[i].Size {
			return fmt.Errorf("it belongs to a different program: %s has %d bytes at %#x, not %d at %#x",
				b[i].Name, b[i].Size, b[i].Addr, a[i].Size, a[i].Addr)
		}
		if f.IsObject() && a[i].Name != b[i].Name {
			return fmt.Errorf("its code section %d is %s, not %s", i, b[i].Name, a[i].Name)
		}
	}
	if f.IsObject() {
		d.TakeBases(a)
	}
	return nil
}

// A link holds the contents of .gnu_debuglink.
type link struct {
	name string // "" if there is no such section
	sum  uint32 // checksum
}

// linkOf returns the link in .gnu_debuglink.
func linkOf(f *elffile.File) (link, error) {
	s := f.Section(".gnu_debuglink")
	if s == nil || !s.HasBytes() {
		return link{}, nil
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return link{}, err
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(b) {
		return link{}, fmt.Errorf("section .gnu_debuglink at file offset %#x lacks a file name or a checksum", s.Off)
	}
	return link{string(b[:end]), f.Order.Uint32(b[at:])}, nil
}
