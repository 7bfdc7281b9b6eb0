package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// Stdin is the name of standard input.
const Stdin = "-"

// An Input is a file open for reading.
type Input struct {
	*os.File
	Info    fs.FileInfo
	name    string
	place   *outfile.Place // of an input that is to be replaced, or nil
	spooled bool           // copied from a pipe, which has no permissions
}

// Open opens a regular file or standard input. Standard input is read completely only if it is an ELF file, archive or
// section.
func Open(ctx context.Context, name string) (*Input, error) { return open(ctx, name, false) }

// open is like Open, but if readAll is set, standard input is always read completely.
func open(ctx context.Context, name string, readAll bool) (*Input, error) {
	in := &Input{name: name}
	var err error
	if name == Stdin {
		err = in.openStdin(ctx, readAll)
	} else {
		in.File, in.Info, err = outfile.OpenRegular(name)
	}
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return in, nil
}

// OpenInPlace opens a regular file that is to be replaced.
func OpenInPlace(name string) (*Input, error) {
	in := &Input{name: name}
	var err error
	if in.place, in.File, in.Info, err = outfile.OpenInput(name); err != nil {
		return nil, outfile.Plain(err)
	}
	return in, nil
}

// Close closes the file, unless it is standard input.
func (in *Input) Close() {
	switch {
	case in.place != nil:
		in.place.Close()
	case in.File != os.Stdin:
		in.File.Close()
	}
}

// Unchanged returns an error if the input changed after it was opened, because parts read at different times may be
// inconsistent.
func (in *Input) Unchanged() error {
	now, err := in.Stat()
	if err == nil && (now.Size() != in.Info.Size() || !now.ModTime().Equal(in.Info.ModTime())) {
		err = errors.New("the input changed while it was being read")
	}
	return outfile.Plain(err)
}

// Output opens the output: a file that replaces the input if it was opened by OpenInPlace, otherwise the named file.
func (in *Input) Output(name string, perm fs.FileMode) (*outfile.File, error) {
	if in.place != nil {
		return outfile.Replace(in.place)
	}
	return Create(name, perm)
}

// Create opens an output, which must not be a terminal.
func Create(name string, perm fs.FileMode) (*outfile.File, error) {
	out, err := outfile.Open(name, perm)
	if err != nil {
		return nil, err
	}
	if d := out.Device(); d != nil && term.IsTerminal(int(d.Fd())) {
		out.Close()
		return nil, errors.New("the output is a terminal; name a file, or pipe it to another program")
	}
	return out, nil
}

// openStdin opens standard input. Unless standard input is a regular file at offset 0, openStdin copies it to a
// temporary file, which allows random access.
func (in *Input) openStdin(ctx context.Context, readAll bool) error {
	stdin := os.Stdin
	info, err := stdin.Stat()
	if err != nil {
		return err
	}
	switch m := info.Mode(); {
	case term.IsTerminal(int(stdin.Fd())):
		return errors.New("standard input is a terminal; redirect a file or a pipe")
	case m.IsDir():
		return errors.New("standard input is a directory; redirect a file or a pipe")
	case m.IsRegular():
		at, err := stdin.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if at == 0 {
			in.File, in.Info = stdin, info
			return nil
		}
	}
	in.spooled = true
	if in.File, err = outfile.Scratch(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- spool(in.File, stdin, readAll) }() // may block forever
	select {
	case err = <-done:
		if err = outfile.Full(os.TempDir(), err); err == nil {
			in.Info, err = in.Stat()
		}
		if err != nil {
			in.File.Close()
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spool copies r to a file. Unless readAll is set, spool stops early if r does not start like a supported file.
func spool(dst *os.File, r io.Reader, readAll bool) error {
	head := make([]byte, elffile.HeaderSize)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	head = head[:n]
	if _, err := dst.Write(head); err != nil {
		return err
	}
	is, err := archive.Is(dst)
	if readAll || is || err != nil || string(head[:min(n, 4)]) == "\x7fELF" || n >= 2 && sframe.IsSection(head) {
		_, err = io.Copy(dst, r)
		return err
	}
	return nil
}
