package repack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
)

// From cpio(5), "New ASCII Format", and for files whose headers have only their number in that of the package, from rpm.
const (
	cpioNew      = "070701"
	cpioSums     = "070702" // with sums of bytes
	cpioStripped = "07070X"
	cpioHeader   = 110
	cpioNumber   = 14 // bytes of a header with the number alone
	cpioSize     = 54 // where the size is, of eight digits
	cpioName     = 94 // the size of the name, zero byte included
	cpioSum      = 102
	cpioEnd      = "TRAILER!!!"
	maxCpioName  = 1 << 16
)

// A cpioEntry is a file of an archive.
type cpioEntry struct {
	raw  []byte // the header, name and padding included
	file int    // its number in the header of the package, or -1 for the end
	size int64
	at   int64 // where it begins in the archive
}

// A cpioReader reads the files of an archive one after the other.
type cpioReader struct {
	in    io.Reader
	files *rpmPackage
	off   int64
	left  int64 // of the contents
}

func (c *cpioReader) errorf(at int64, format string, args ...any) error {
	return rpmError(c.files.payload, "payload at offset %#x, decompressed: %w", at, fmt.Errorf(format, args...))
}

func (c *cpioReader) wrong(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return c.errorf(c.off, "it ends early")
	}
	return c.errorf(c.off, "%w", err)
}

// more appends n bytes to b.
func (c *cpioReader) more(b []byte, n int) ([]byte, error) {
	begin := len(b)
	b = append(b, make([]byte, n)...)
	k, err := io.ReadFull(c.in, b[begin:])
	c.off += int64(k)
	if err != nil {
		return nil, c.wrong(err)
	}
	if c.off > maxUnpacked {
		return nil, c.errorf(c.off, "more than %d bytes", int64(maxUnpacked))
	}
	return b, nil
}

func (c *cpioReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.off += int64(n)
	switch {
	case c.off > maxUnpacked:
		err = c.errorf(c.off, "more than %d bytes", int64(maxUnpacked))
	case err == io.EOF && c.left == 0:
		err = nil
	case err != nil:
		err = c.wrong(err)
	}
	return n, err
}

// hex reads a number of eight digits.
func (e *cpioEntry) hex(at int) (int64, error) {
	n, err := strconv.ParseUint(string(e.raw[at:at+8]), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%q in a header; eight hexadecimal digits were expected", e.raw[at:at+8])
	}
	return int64(n), nil
}

// next reads the header of the next file.
func (c *cpioReader) next() (*cpioEntry, error) {
	e := &cpioEntry{at: c.off}
	var err error
	if e.raw, err = c.more(nil, cpioNumber); err != nil {
		return nil, err
	}
	switch string(e.raw[:6]) {
	case cpioStripped:
		n, err := e.hex(6)
		if err != nil || n >= int64(len(c.files.names)) {
			return nil, c.errorf(e.at, "file %.8q; the number of one of %d files was expected", e.raw[6:], len(c.files.names))
		}
		e.file = int(n)
		if e.raw, err = c.more(e.raw, -cpioNumber&3); err != nil {
			return nil, err
		}
		if e.size, err = c.stored(e.file); err != nil {
			return nil, err
		}
	case cpioNew, cpioSums:
		if err := c.header(e); err != nil {
			return nil, err
		}
	default:
		return nil, c.errorf(e.at, "header %.6q; %s, %s or %s was expected", e.raw, cpioNew, cpioSums, cpioStripped)
	}
	if e.size > maxUnpacked {
		return nil, c.errorf(e.at, "a file of %d bytes; %d were expected at most", e.size, int64(maxUnpacked))
	}
	c.left = e.size
	return e, nil
}

// stored returns how many bytes of a file are in the archive whose header has its number only. Of one with several names, the last
// has all of them; links and others that have no contents but a size have that.
func (c *cpioReader) stored(file int) (int64, error) {
	m := c.files
	switch m.modes[file] & 0o170000 {
	case 0o100000:
		if names := m.links[[2]uint64{m.devices[file], m.inode[file]}]; len(names) > 1 && names[len(names)-1] != file {
			return 0, nil
		}
		return int64(min(m.sizes[file], 1<<62)), nil
	case 0o120000:
		return int64(min(m.sizes[file], 1<<62)), nil
	}
	return 0, nil
}

// header reads the rest of the header of a file, and its name.
func (c *cpioReader) header(e *cpioEntry) error {
	var err error
	if e.raw, err = c.more(e.raw, cpioHeader-cpioNumber); err != nil {
		return err
	}
	name, err := e.hex(cpioName)
	if err == nil {
		e.size, err = e.hex(cpioSize)
	}
	if err == nil && (name == 0 || name > maxCpioName) {
		err = fmt.Errorf("a name of %d bytes; 1 to %d were expected", name, maxCpioName)
	}
	if err != nil {
		return c.errorf(e.at, "%w", err)
	}
	if e.raw, err = c.more(e.raw, int(name)+int(-(cpioHeader+name)&3)); err != nil {
		return err
	}
	text, _, ok := bytes.Cut(e.raw[cpioHeader:cpioHeader+name], []byte{0})
	if string(text) == cpioEnd && e.size == 0 {
		e.file = -1
		return nil
	}
	file, known := c.files.index[clean(string(text))]
	if !ok || !known {
		return c.errorf(e.at, "a file %.100q that the header of the package does not have", text)
	}
	e.file = file
	return nil
}

// resized returns the header of a file that has other contents.
func (e *cpioEntry) resized(b []byte) ([]byte, error) {
	raw := bytes.Clone(e.raw)
	if string(raw[:6]) == cpioStripped {
		return raw, nil
	}
	if int64(len(b)) > 1<<32-1 {
		return nil, fmt.Errorf("%d bytes of a file; eight hexadecimal digits were expected to be enough", len(b))
	}
	style := "%08x"
	if bytes.ContainsAny(raw[:cpioHeader], "ABCDEF") {
		style = "%08X"
	}
	copy(raw[cpioSize:], fmt.Sprintf(style, len(b)))
	if string(raw[:6]) == cpioSums {
		var sum uint32
		for _, c := range b {
			sum += uint32(c)
		}
		copy(raw[cpioSum:], fmt.Sprintf(style, sum))
	}
	return raw, nil
}

// copy copies the archive, and gives each regular file with contents those that edit wants.
func (c *cpioReader) copy(ctx context.Context, w io.Writer, edit func(e *cpioEntry, r io.Reader) (changed, read []byte, err error)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := c.next()
		if err != nil {
			return err
		}
		if e.file < 0 {
			if _, err := w.Write(e.raw); err != nil {
				return err
			}
			return c.tail(w)
		}
		var changed, read []byte
		if c.files.modes[e.file]&0o170000 == 0o100000 {
			if e.size == 0 { // it has another name, or is empty
				if c.files.sizes[e.file] == 0 {
					c.files.res.Others++
				}
			} else if changed, read, err = edit(e, c); err != nil {
				return err
			}
		}
		padding := -e.size & 3
		raw := e.raw
		if changed != nil {
			if raw, err = e.resized(changed); err != nil {
				return c.errorf(e.at, "%w", err)
			}
			read = append(changed, make([]byte, -len(changed)&3)...)
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
		if _, err := w.Write(read); err != nil {
			return err
		}
		if _, err := io.Copy(w, contextReader{ctx, c}); err != nil {
			return err
		}
		rest, err := c.more(nil, int(padding))
		if err != nil {
			return err
		}
		if changed == nil {
			if _, err := w.Write(rest); err != nil {
				return err
			}
		}
	}
}

// tail copies what there is after the end: zeros, if anything.
func (c *cpioReader) tail(w io.Writer) error {
	begin := c.off
	buf := make([]byte, 1<<12)
	for {
		n, err := c.in.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return c.errorf(c.off, "something after the end of the archive; zeros were expected")
		}
		c.off += int64(n)
		if c.off-begin > maxTail {
			return c.errorf(c.off, "more than %d bytes after the end of the archive", maxTail)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.wrong(err)
		}
	}
}
