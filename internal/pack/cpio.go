package pack

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// The cpio archives of RPMs (cpio(5), "New ASCII Format"): members begin with a magic and numbers of 8 hexadecimal
// digits, and are aligned to 4 bytes. Where a file does not fit such a number, members only have a
// number of their own, and the header of the package says what they are.
const (
	cpioMagic    = "070701"
	cpioSummed   = "070702"
	cpioStripped = "07070X"
	cpioFields   = 13
	cpioEnd      = "TRAILER!!!"

	// The fields that are used, in their order.
	cpioInode, cpioMode, cpioLinks, cpioSize, cpioMajor, cpioMinor, cpioNameSize = 0, 1, 4, 6, 7, 8, 11

	modeType   = 0o170000
	modeFile   = 0o100000
	modeLink   = 0o120000
	modeFolder = 0o040000

	flagGhost = 1 << 6 // is not in the package (rpmfiles.h)
)

// A cpioMember is what there is to know of one.
type cpioMember struct {
	name  string
	mode  uint64
	size  uint64
	inode [3]uint64 // and device
	links uint64    // how many names it has
}

// A cpioReader goes through an archive.
type cpioReader struct {
	*stream
	header *header
	files  *packaged         // or nil
	last   map[[3]uint64]int // of names of the same file, the index of the last one, which has the contents
	count  map[[3]uint64]uint64
}

// cpio reads the payload of a package.
func (r *reader) cpio(s *stream, h *header) ([]File, error) {
	c := &cpioReader{stream: s, header: h}
	var entries []entry
	var order [][3]uint64                  // of files with several names
	groups := make(map[[3]uint64][]string) // their names without contents so far
	have := make(map[[3]uint64]int)        // their members
	for {
		m, err := c.next()
		if err != nil {
			return nil, err
		}
		if m == nil {
			break
		}
		name := clean(m.name)
		if err := r.count(m.name, ""); err != nil {
			return nil, s.error("", err)
		}
		begin := s.off
		e := entry{name: name, typ: isOther, member: -1}
		switch m.mode & modeType {
		case modeFolder:
			e.typ = isFolder
		case modeLink:
			e.typ = isSymlink
		case modeFile:
			e.typ = isFile
			if m.links > 1 && m.size == 0 {
				if i, ok := have[m.inode]; ok {
					e.member = i
					break
				}
				if groups[m.inode] == nil {
					order = append(order, m.inode)
				}
				groups[m.inode] = append(groups[m.inode], name)
				continue
			}
			if e.member, err = r.member(name, int64(m.size), s, io.LimitReader(s, int64(m.size))); err != nil {
				return nil, err
			}
			if m.links > 1 {
				have[m.inode] = e.member
			}
		}
		entries = append(entries, e)
		if err := c.skip(name, int64(m.size)-(s.off-begin)); err != nil {
			return nil, err
		}
		if err := c.pad(); err != nil {
			return nil, err
		}
	}
	if err := s.drain(); err != nil {
		return nil, err
	}
	for _, inode := range order {
		i, ok := have[inode]
		if !ok { // it is empty
			var err error
			if i, err = r.member(groups[inode][0], 0, s, bytes.NewReader(nil)); err != nil {
				return nil, err
			}
		}
		for _, name := range groups[inode] {
			entries = append(entries, entry{name: name, member: i})
		}
	}
	return files(entries)
}

// skip skips what is left of a member.
func (c *cpioReader) skip(name string, n int64) error {
	if _, err := io.CopyN(io.Discard, c, n); err != nil {
		return c.error(name, err)
	}
	return nil
}

// pad skips what aligns the next member.
func (c *cpioReader) pad() error { return c.skip("", -c.off&3) }

// read reads n bytes.
func (c *cpioReader) read(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(c.stream, b); err != nil {
		return nil, c.error("", err)
	}
	return b, nil
}

// next reads the header of a member, or returns nil at the end.
func (c *cpioReader) next() (*cpioMember, error) {
	begin := c.off
	fail := func(format string, args ...any) error {
		return &Error{Part: c.part, Off: begin, Packed: c.packed, Err: fmt.Errorf(format, args...)}
	}
	magic, err := c.read(len(cpioMagic))
	if err != nil {
		return nil, err
	}
	if string(magic) == cpioStripped {
		return c.stripped(fail)
	}
	if string(magic) != cpioMagic && string(magic) != cpioSummed {
		return nil, fail("no member of a cpio archive: it begins with %q, where %q was expected", magic, cpioMagic)
	}
	b, err := c.read(cpioFields * 8)
	if err != nil {
		return nil, err
	}
	var f [cpioFields]uint64
	for i := range f {
		if f[i], err = strconv.ParseUint(string(b[i*8:][:8]), 16, 32); err != nil {
			return nil, fail("field %d of a member is %q; 8 hexadecimal digits were expected", i, b[i*8:][:8])
		}
	}
	if f[cpioNameSize] == 0 || f[cpioNameSize] > maxName {
		return nil, fail("a name of %d bytes; 1 to %d were expected", f[cpioNameSize], maxName)
	}
	name, err := c.read(int(f[cpioNameSize]))
	if err != nil {
		return nil, err
	}
	name = bytes.TrimRight(name, "\x00")
	if err := c.pad(); err != nil {
		return nil, err
	}
	if string(name) == cpioEnd {
		return nil, nil
	}
	return &cpioMember{
		name: string(name), mode: f[cpioMode], size: f[cpioSize], links: f[cpioLinks],
		inode: [3]uint64{f[cpioMajor], f[cpioMinor], f[cpioInode]},
	}, nil
}

// stripped reads the header of a member that the header of the package has the rest of.
func (c *cpioReader) stripped(fail func(string, ...any) error) (*cpioMember, error) {
	b, err := c.read(8)
	if err != nil {
		return nil, err
	}
	if c.files == nil {
		if c.files, err = c.header.packaged(); err != nil {
			return nil, err
		}
		c.group()
	}
	f := c.files
	i, err := strconv.ParseUint(string(b), 16, 32)
	if err != nil || i >= uint64(len(f.names)) {
		return nil, fail("member %q of a package with %d files", b, len(f.names))
	}
	if err := c.pad(); err != nil {
		return nil, err
	}
	m := &cpioMember{name: f.names[i], mode: f.modes[i], size: f.sizes[i], links: 1}
	switch m.mode & modeType {
	case modeFile:
		m.inode = [3]uint64{f.device[i], 0, f.inode[i]}
		if m.links = c.count[m.inode]; m.links > 1 && c.last[m.inode] != int(i) {
			m.size = 0
		}
	case modeLink:
		m.size = uint64(len(f.links[i]))
	default:
		m.size = 0
	}
	if m.size > 1<<62 {
		return nil, fail("file %d has %d bytes", i, m.size)
	}
	return m, nil
}

// group finds out which files have several names. Of those, the last one comes with the contents.
func (c *cpioReader) group() {
	c.last, c.count = make(map[[3]uint64]int), make(map[[3]uint64]uint64)
	f := c.files
	for i := range f.names {
		if f.modes[i]&modeType == modeFile && f.flags[i]&flagGhost == 0 {
			inode := [3]uint64{f.device[i], 0, f.inode[i]}
			c.last[inode] = i
			c.count[inode]++
		}
	}
}
