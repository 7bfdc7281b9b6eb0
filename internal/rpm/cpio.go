package rpm

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// A member of a payload begins with a magic number and numbers of 8 hexadecimal digits each, and is aligned to 4 bytes.
// Where a file of the package is too large for such a number, members have the file's number and nothing else.
const (
	magicNew      = "070701"
	magicSums     = "070702" // with sums of bytes
	magicStripped = "07070X"
	trailer       = "TRAILER!!!"
	digits        = 8
	strippedSize  = len(magicNew) + digits
	memberSize    = len(magicNew) + fields*digits
	maxName       = 4096    // bytes, with the zero at the end
	maxSize       = 1 << 62 // bytes of a file
)

// The numbers that are used, in their order.
const (
	fieldInode    = 0
	fieldMode     = 1
	fieldLinks    = 4
	fieldSize     = 6
	fieldMajor    = 7
	fieldMinor    = 8
	fieldNameSize = 11
	fields        = 13
)

// The types of files in their modes.
const (
	ModeType = 0o170000
	ModeFile = 0o100000
	ModeLink = 0o120000
	ModeDir  = 0o040000
)

// A Member of a payload.
type Member struct {
	Raw   []byte // its header, with name and padding
	Off   int64  // of it in the payload
	Last  bool   // it marks the end
	File  int    // its number in the header of the package, or -1 if it has a name
	Name  string
	Mode  uint64
	Size  int64     // of the contents that follow, in bytes
	Links int       // how many names the file has
	Inode [3]uint64 // what they have in common
}

// An Archive is a payload, decompressed, that is read one member after the other.
type Archive struct {
	in    io.Reader
	head  *Header
	files *Files
	off   int64
	left  int64 // of the contents of a member
}

// NewArchive returns the archive in the payload that follows a header. If the files are nil, they are read from the
// header for the first member that has only a number. Errors of in are returned as those of the payload.
func NewArchive(in io.Reader, h *Header, files *Files) *Archive {
	return &Archive{in: in, head: h, files: files}
}

func (a *Archive) error(off int64, err error) error { return &Error{a.head.End(), off, err} }

func (a *Archive) errorf(off int64, format string, args ...any) error {
	return a.error(off, fmt.Errorf(format, args...))
}

// Read reads the contents of the member.
func (a *Archive) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n, err := a.in.Read(p[:min(int64(len(p)), a.left)])
	a.left -= int64(n)
	a.off += int64(n)
	switch {
	case err == io.EOF && a.left == 0:
		err = nil
	case err == io.EOF:
		err = a.error(a.off, io.ErrUnexpectedEOF)
	case err != nil:
		err = a.error(a.off, err)
	}
	return n, err
}

// more appends n bytes to b.
func (a *Archive) more(b []byte, n int) ([]byte, error) {
	begin := len(b)
	b = append(b, make([]byte, n)...)
	a.left = int64(n)
	_, err := io.ReadFull(a, b[begin:])
	return b, err
}

// Padding reads the padding after the contents of the member.
func (a *Archive) Padding() ([]byte, error) { return a.more(nil, int(-a.off&3)) }

// Next returns the next member, or the mark of the end.
func (a *Archive) Next() (*Member, error) {
	if _, err := io.Copy(io.Discard, a); err != nil {
		return nil, err
	}
	if _, err := a.Padding(); err != nil {
		return nil, err
	}
	m := &Member{Off: a.off, File: -1, Links: 1}
	var err error
	if m.Raw, err = a.more(nil, strippedSize); err != nil {
		return nil, err
	}
	switch magic := string(m.Raw[:len(magicNew)]); magic {
	case magicStripped:
		err = a.stripped(m)
	case magicNew, magicSums:
		err = a.named(m)
	default:
		err = a.errorf(m.Off, "no member of a cpio archive: it begins with %q", magic)
	}
	if err != nil {
		return nil, err
	}
	a.left = m.Size
	return m, nil
}

// stripped reads the rest of a member's header that has only a number.
func (a *Archive) stripped(m *Member) (err error) {
	if a.files == nil {
		if a.files, err = a.head.Files(); err != nil {
			return err
		}
	}
	f := a.files
	number := m.Raw[len(magicNew):]
	n, err := strconv.ParseUint(string(number), 16, 32)
	if err != nil || n >= uint64(len(f.Names)) {
		return a.errorf(m.Off, "member %q of a package with %d files", number, len(f.Names))
	}
	if m.Raw, err = a.more(m.Raw, -strippedSize&3); err != nil {
		return err
	}
	i := int(n)
	size := f.stored(i)
	if size > maxSize {
		return a.errorf(m.Off, "file %d has %d bytes; at most %d are supported", i, size, int64(maxSize))
	}
	m.File, m.Name, m.Mode, m.Size = i, f.Names[i], f.Modes[i], int64(size)
	m.Links, m.Inode = len(f.Linked(i)), [3]uint64{f.devices[i], 0, f.inodes[i]}
	return nil
}

// field returns a number in a member's header.
func field(raw []byte, i int) []byte { return raw[len(magicNew)+i*digits:][:digits] }

// named reads the rest of a member's header with all fields and a name.
func (a *Archive) named(m *Member) (err error) {
	if m.Raw, err = a.more(m.Raw, memberSize-strippedSize); err != nil {
		return err
	}
	var f [fields]uint64
	for i := range f {
		if f[i], err = strconv.ParseUint(string(field(m.Raw, i)), 16, 32); err != nil {
			return a.errorf(m.Off, "field %d of a member is %q, not %d hexadecimal digits", i, field(m.Raw, i), digits)
		}
	}
	size := f[fieldNameSize]
	if size == 0 || size > maxName {
		return a.errorf(m.Off, "a name of %d bytes; 1 to %d are supported", size, maxName)
	}
	if m.Raw, err = a.more(m.Raw, int(size)); err != nil {
		return err
	}
	name, _, _ := bytes.Cut(m.Raw[memberSize:], []byte{0})
	padding, err := a.Padding()
	if err != nil {
		return err
	}
	m.Raw = append(m.Raw, padding...)
	if m.Name = string(name); m.Name == trailer {
		m.Last = true
		return nil
	}
	m.Mode, m.Size, m.Links = f[fieldMode], int64(f[fieldSize]), int(f[fieldLinks])
	m.Inode = [3]uint64{f[fieldMajor], f[fieldMinor], f[fieldInode]}
	return nil
}

// Resized returns the member's header with another size of its contents.
func (m *Member) Resized(size int64) ([]byte, error) {
	if m.File >= 0 {
		return m.Raw, nil
	}
	if bytes.HasPrefix(m.Raw, []byte(magicSums)) {
		return nil, fmt.Errorf("%s has a sum of bytes, which is not supported; build the package anew", m.Name)
	}
	if size > 1<<32-1 {
		return nil, fmt.Errorf("the payload cannot express a size of %d bytes", size)
	}
	raw := bytes.Clone(m.Raw)
	copy(field(raw, fieldSize), fmt.Sprintf("%08x", size))
	return raw, nil
}
