package convert

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/term"
)

// Stdout is the output that stands for standard output.
const Stdout = "-"

// stdoutNames are other names of it. A file that a shell has opened keeps its name and
// place that way.
var stdoutNames = []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}

// IsStdout reports whether the output of that name is standard output.
func IsStdout(out string) bool { return out == Stdout || slices.Contains(stdoutNames, out) }

// An output is where a result goes. It is written to a temporary file first, and gets
// to its place when it is known to be right.
type output struct {
	*os.File          // the temporary file
	target   string   // the file that is replaced, symbolic links followed; or "" for a stream
	stream   *os.File // a pipe, a device or standard output
}

// openOutput prepares the output of the given name.
func openOutput(out string) (*output, error) {
	o := &output{}
	if IsStdout(out) {
		o.stream = os.Stdout
	} else if err := o.find(out); err != nil {
		return nil, err
	}
	if o.stream != nil && term.IsTerminal(int(o.stream.Fd())) {
		return nil, errors.New("the output is a terminal; a file, or a pipe to another program, was expected")
	}
	dir := ""
	if o.stream == nil {
		dir = filepath.Dir(o.target)
	}
	var err error
	if o.File, err = os.CreateTemp(dir, ".cfi2sframe-*"); err != nil {
		o.close()
		return nil, fmt.Errorf("cannot write to %s: %w", orTemp(dir), plain(err))
	}
	return o, nil
}

func orTemp(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// find follows symbolic links to what is to be written.
func (o *output) find(out string) error {
	info, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		if l, err := os.Lstat(out); err == nil && l.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("output %s is a symbolic link to nothing", out)
		}
		o.target = out
		return nil
	}
	if err != nil {
		return fmt.Errorf("output %s: %w", out, plain(err))
	}
	switch m := info.Mode(); {
	case m.IsRegular():
		if o.target, err = filepath.EvalSymlinks(out); err != nil {
			return fmt.Errorf("output %s: %w", out, plain(err))
		}
	case m&fs.ModeNamedPipe != 0, m&fs.ModeCharDevice != 0:
		if o.stream, err = os.OpenFile(out, os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("output %s: %w", out, plain(err))
		}
	default:
		return fmt.Errorf("output %s is a %s; a regular file, a pipe or a character device was expected", out, fileKind(m))
	}
	return nil
}

// replaces reports whether the output takes the place of the given file.
func (o *output) replaces(info fs.FileInfo) bool {
	old, err := os.Stat(o.target)
	return o.stream == nil && err == nil && os.SameFile(old, info)
}

// commit puts the result in its place. It gets the owner, attributes and mode of the
// input.
func (o *output) commit(src *os.File, info fs.FileInfo) error {
	if o.stream != nil {
		if _, err := o.Seek(0, io.SeekStart); err != nil {
			return plain(err)
		}
		if _, err := io.Copy(o.stream, o.File); err != nil {
			return fmt.Errorf("writing the output: %w", plain(err))
		}
		return nil
	}
	if err := likeInput(o.File, src, info, o.replaces(info)); err != nil {
		return plain(err)
	}
	return plain(os.Rename(o.Name(), o.target))
}

// close removes the temporary file if it was not renamed.
func (o *output) close() {
	if o.File != nil {
		o.File.Close()
		os.Remove(o.Name()) // fails after the rename, as it should
	}
	if o.stream != nil && o.stream != os.Stdout {
		o.stream.Close()
	}
}

// plain takes the operation and path off an error of the file system: messages
// name the file already.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return plain(p.Err)
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	var s *os.SyscallError
	if errors.As(err, &s) {
		return s.Err
	}
	return err
}

func fileKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeDevice != 0:
		return "device"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "special file"
}
