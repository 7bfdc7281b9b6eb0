package convert

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// A debugUpdate is a debug file that is brought into line with a result, and not in its place yet.
type debugUpdate struct {
	path   string
	place  *outfile.Place
	output *outfile.File // nil if the file is right as it is
	noSync bool
}

// updateDebug makes the debug file of the result have its headers, and the result the new checksum of that.
func (p *pending) updateDebug() (err error) {
	if p.opt.DebugLinkUpdate == "" || p.opt.DryRun {
		return nil
	}
	if p.res.Archive || !p.linked && p.res.Stays != "" && p.res.Stays != Current {
		return nil // of archives nothing is split off, and the other one is no file to be converted
	}
	prog, err := p.result()
	if err != nil {
		return err
	}
	if prog.IsObject() {
		if p.opt.DebugLinkUpdate == debugfile.Auto && prog.Section(".gnu_debuglink") == nil {
			return nil
		}
		return errors.New("its debug file cannot be updated: it is a relocatable object, and a program or a shared library was expected; " +
			"convert it before its debug information is split off")
	}
	var d *debugfile.File
	if p.opt.DebugLinkUpdate == debugfile.Auto {
		d, p.res.PassedOver, err = debugfile.Find(p.input.name, prog)
	} else {
		d, err = debugfile.Open(p.opt.DebugLinkUpdate, p.input.name, prog)
	}
	if d == nil || err != nil {
		return err
	}
	defer d.Close()
	u := &debugUpdate{path: d.Path(), noSync: p.opt.NoSync}
	defer func() {
		if err != nil {
			u.close()
			err = fmt.Errorf("debug file %s: %w", u.path, err)
		}
	}()
	place, src, info, err := outfile.OpenInput(d.Path())
	if err != nil {
		return err
	}
	u.place = place
	if own, err := p.input.src.Stat(); err == nil && os.SameFile(own, info) {
		return errors.New("it is the program itself; the file that its debug information was split off to was expected")
	}
	f, err := elffile.New(src, info.Size())
	if err != nil {
		return err
	}
	if hasCode(f) {
		return errors.New("it has code of its own, as a copy of the program has; what debug information was split off to, by objcopy --only-keep-debug or eu-strip, was expected")
	}
	layout, err := elfwrite.PlanDebug(f, prog)
	if err != nil {
		return err
	}
	if u.output, err = outfile.Replace(place); err != nil {
		return err
	}
	if err := layout.Write(p.ctx, u.output.File, src, nil, nil); err != nil {
		return outfile.Plain(err)
	}
	sum, same, err := compareFiles(u.output.File, src)
	if err != nil {
		return outfile.Plain(err)
	}
	if now, err := src.Stat(); err != nil || !now.ModTime().Equal(info.ModTime()) || now.Size() != info.Size() {
		return errors.New("it was changed while it was read")
	}
	if p.opt.KeepDates {
		u.output.KeepDates(info)
	}
	if same {
		u.output.Close()
		u.output = nil
	} else {
		p.res.DebugFile = u.path
	}
	p.debug = u
	if err := p.setChecksum(prog, sum); err != nil {
		p.debug = nil
		return err
	}
	return nil
}

// result returns the result as an ELF file: the output, or the input if that stays.
func (p *pending) result() (*elffile.File, error) {
	src := p.input.src
	if p.output != nil {
		src = p.output.File
	}
	info, err := src.Stat()
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return elffile.New(src, info.Size())
}

// setChecksum puts the checksum of the debug file into the result, if that has one.
func (p *pending) setChecksum(prog *elffile.File, sum uint32) error {
	s := prog.Section(".gnu_debuglink")
	if s == nil || !s.HasBytes() {
		return nil
	}
	b, err := prog.ReadSection(s)
	if err != nil {
		return err
	}
	at := (bytes.IndexByte(b, 0) + 4) &^ 3 // debugfile has looked whether it is there
	if at+4 > len(b) || prog.Order.Uint32(b[at:]) == sum {
		return nil
	}
	if p.output == nil { // nothing else of the file changes
		dst, err := p.create()
		if err != nil {
			return err
		}
		if err := filecopy.Range(p.ctx, dst, 0, p.src, 0, p.size); err != nil {
			return outfile.Plain(err)
		}
		p.res.Stays = ""
	}
	prog.Order.PutUint32(b[at:], sum)
	_, err = p.output.WriteAt(b[at:at+4], int64(s.Off)+int64(at))
	return outfile.Plain(err)
}

// compareFiles returns the checksum of the first file, as .gnu_debuglink has it, and reports whether both files are
// equal.
func compareFiles(first, second *os.File) (sum uint32, same bool, err error) {
	const chunk = 1 << 18
	a, err := whole(first)
	if err != nil {
		return 0, false, err
	}
	b, err := whole(second)
	if err != nil {
		return 0, false, err
	}
	x, y := make([]byte, chunk), make([]byte, chunk)
	same = true
	h := crc32.NewIEEE()
	for off := int64(0); off < math.MaxInt64-chunk; off += chunk {
		n, err := a.ReadAt(x, off)
		if err != nil && err != io.EOF {
			return 0, false, err
		}
		m, failed := b.ReadAt(y, off)
		if failed != nil && failed != io.EOF {
			return 0, false, failed
		}
		h.Write(x[:n])
		same = same && bytes.Equal(x[:n], y[:m])
		if n < chunk {
			break
		}
	}
	return h.Sum32(), same, nil
}

// whole returns a reader of a file for which an end before its size is an error.
func whole(f *os.File) (io.ReaderAt, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return filecopy.Sized(f, info.Size()), nil
}

// finish makes the debug file ready for its place.
func (u *debugUpdate) finish() error {
	if u == nil || u.output == nil {
		return nil
	}
	return u.wrap(u.output.Finish(!u.noSync))
}

// commit puts the debug file in its place.
func (u *debugUpdate) commit() error {
	if u == nil || u.output == nil {
		return nil
	}
	err := u.output.Commit()
	if err == nil && !u.noSync {
		err = outfile.SyncFolders([]*outfile.Place{u.place})[u.place]
	}
	return u.wrap(err)
}

func (u *debugUpdate) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("debug file %s: %w", u.path, err)
}

// close gives up what is not in its place.
func (u *debugUpdate) close() {
	if u == nil {
		return
	}
	if u.output != nil {
		u.output.Close()
	}
	if u.place != nil {
		u.place.Close()
	}
}
