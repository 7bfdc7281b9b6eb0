package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// Stdin is the input that stands for standard input.
const Stdin = "-"

// An input is a file that is open for reading.
type input struct {
	name    string
	src     *os.File
	info    fs.FileInfo
	place   *outfile.Place // where it is, or nil if that does not matter
	spooled bool           // it came through a pipe and has no permissions of its own
}

// A use is what an input is for.
type use struct {
	replace bool // it is to be replaced, and so opened at its place
	whole   bool // all of standard input is read even if it is nothing that can be converted
}

// openInput opens a file for reading, and refuses whatever is no regular one. Standard input
// may be anything that ends.
func openInput(ctx context.Context, name string, u use) (*input, error) {
	in := &input{name: name}
	var err error
	switch {
	case name == Stdin:
		err = in.openStdin(ctx, u.whole)
	case u.replace:
		in.place, in.src, in.info, err = outfile.OpenInput(name)
	default:
		in.src, in.info, err = outfile.OpenRegular(name) // which may be one that leads to no place, such as /dev/fd/3
	}
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return in, nil
}

// close closes the file, unless that is standard input.
func (in *input) close() {
	if in.place != nil {
		in.place.Close()
		return
	}
	if in.src != os.Stdin {
		in.src.Close()
	}
}

// unchanged returns an error if the input is not what it was when it was opened. Its parts are read
// at different times, and would not belong together.
func (in *input) unchanged() error {
	now, err := in.src.Stat()
	if err == nil && (now.Size() != in.info.Size() || !now.ModTime().Equal(in.info.ModTime())) {
		err = errors.New("the input was changed while it was read")
	}
	return outfile.Plain(err)
}

// openStdin opens standard input: as it is if it is a regular file from its start, and else
// as a copy, because it is read in no order.
func (in *input) openStdin(ctx context.Context, whole bool) error {
	var err error
	stdin := os.Stdin
	if in.info, err = stdin.Stat(); err == nil {
		switch m := in.info.Mode(); {
		case term.IsTerminal(int(stdin.Fd())):
			err = errors.New("standard input is a terminal; a file, or a pipe from another program, was expected")
		case m.IsDir():
			err = fmt.Errorf("%v: a file or a pipe was expected", outfile.Kind(m))
		case m.IsRegular():
			var at int64
			if at, err = stdin.Seek(0, io.SeekCurrent); err == nil && at == 0 {
				in.src = stdin
				return nil
			}
		}
	}
	if err != nil {
		return err
	}
	in.spooled = true
	type spooled struct {
		file *os.File
		err  error
	}
	done := make(chan spooled, 1)
	go func() { // it may wait for what never comes
		file, err := spool(ctx, stdin, whole)
		done <- spooled{file, err}
	}()
	select {
	case s := <-done:
		if s.err != nil {
			return s.err
		}
		in.src = s.file
	case <-ctx.Done():
		return ctx.Err()
	}
	if in.info, err = in.src.Stat(); err != nil {
		in.src.Close()
	}
	return err
}

// spool copies what is read from r to a file for temporary use, if it begins as a file does that
// can be converted, or all of it is wanted; else no more than tells that.
func spool(ctx context.Context, r io.Reader, whole bool) (*os.File, error) {
	dst, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	head := make([]byte, elffile.HeaderSize)
	n, err := io.ReadFull(r, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	if err == nil {
		_, err = dst.Write(head[:n])
	}
	if err == nil && (whole || known(head[:n], dst)) {
		_, err = io.Copy(dst, r)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		dst.Close()
		return nil, err
	}
	return dst, nil
}

// known reports whether a file begins as one does that can be converted or printed.
func known(head []byte, f *os.File) bool {
	is, err := archive.Is(f)
	return is || err != nil || string(head[:min(len(head), 4)]) == "\x7fELF" || len(head) >= 2 && sframe.IsSection(head)
}
