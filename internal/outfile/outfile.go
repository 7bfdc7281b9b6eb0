// Package outfile writes files whole: into a temporary file first, and into their place
// when they are known to be right.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/term"
)

// Stdout is the output that stands for standard output.
const Stdout = "-"

// stdoutNames are other names of it. A file that a shell has opened keeps its name and
// place that way.
var stdoutNames = []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}

// IsStdout reports whether the output of that name is standard output.
func IsStdout(out string) bool { return out == Stdout || slices.Contains(stdoutNames, out) }

// A File is an output. What is written to it gets to its place by Commit.
type File struct {
	*os.File          // the temporary file
	target   string   // the file that is replaced, symbolic links followed; or "" for a stream
	pipe     string   // a named pipe, which Commit opens: that waits for a reader
	stream   *os.File // a pipe, a device or standard output
}

// Open prepares the output of the given name, which may be a file that there is or is not
// yet, a pipe, a character device, or Stdout. It is not touched before Commit.
func Open(out string) (*File, error) {
	o := &File{}
	if IsStdout(out) {
		o.stream = os.Stdout
	} else if err := o.find(out); err != nil {
		return nil, err
	}
	if o.stream != nil && term.IsTerminal(int(o.stream.Fd())) {
		return nil, errors.New("the output is a terminal; a file, or a pipe to another program, was expected")
	}
	dir := ""
	if !o.Stream() {
		dir = filepath.Dir(o.target)
	}
	var err error
	if o.File, err = os.CreateTemp(dir, ".cfi2sframe-*"); err != nil {
		o.Close()
		return nil, fmt.Errorf("cannot write to %s: %w", orTemp(dir), Plain(err))
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
func (o *File) find(out string) error {
	info, err := os.Stat(out)
	if errors.Is(err, fs.ErrNotExist) {
		if l, err := os.Lstat(out); err == nil && l.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("output %s is a symbolic link to nothing", out)
		}
		o.target = out
		return nil
	}
	if err != nil {
		return fmt.Errorf("output %s: %w", out, Plain(err))
	}
	switch m := info.Mode(); {
	case m.IsRegular():
		if o.target, err = filepath.EvalSymlinks(out); err != nil {
			return fmt.Errorf("output %s: %w", out, Plain(err))
		}
	case m&fs.ModeNamedPipe != 0:
		o.pipe = out
	case m&fs.ModeCharDevice != 0:
		if o.stream, err = os.OpenFile(out, os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("output %s: %w", out, Plain(err))
		}
	default:
		return fmt.Errorf("output %s is a %s; a regular file, a pipe or a character device was expected", out, Kind(m))
	}
	return nil
}

// Stream reports whether the output is a pipe, a device or standard output, which has no
// attributes to be set.
func (o *File) Stream() bool { return o.stream != nil || o.pipe != "" }

// Replaces reports whether the output takes the place of the given file.
func (o *File) Replaces(info fs.FileInfo) bool {
	old, err := os.Stat(o.target)
	return err == nil && os.SameFile(old, info)
}

// LikeNew gives the file the mode of the one that it replaces, or that of a new one.
func (o *File) LikeNew() error {
	if o.Stream() {
		return nil
	}
	umask := syscall.Umask(0)
	syscall.Umask(umask)
	mode := fs.FileMode(0o666 &^ umask)
	if old, err := os.Stat(o.target); err == nil {
		mode = old.Mode().Perm()
	}
	return Plain(o.Chmod(mode))
}

// Commit puts what was written in its place.
func (o *File) Commit() error {
	if !o.Stream() {
		return Plain(os.Rename(o.Name(), o.target))
	}
	if o.pipe != "" {
		var err error
		if o.stream, err = os.OpenFile(o.pipe, os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("output %s: %w", o.pipe, Plain(err))
		}
	}
	if _, err := o.Seek(0, io.SeekStart); err != nil {
		return Plain(err)
	}
	if _, err := io.Copy(o.stream, o.File); err != nil {
		return fmt.Errorf("writing the output: %w", Plain(err))
	}
	return nil
}

// Close removes the temporary file if it was not renamed.
func (o *File) Close() {
	if o.File != nil {
		o.File.Close()
		os.Remove(o.Name()) // fails after the rename, as it should
	}
	if o.stream != nil && o.stream != os.Stdout {
		o.stream.Close()
	}
}

// Plain takes the operation and path off an error of the file system: messages
// name the file already.
func Plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return Plain(p.Err)
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

// Kind says what kind of file that is not a regular one has the given mode.
func Kind(m fs.FileMode) string {
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
