// Package outfile writes files whole: into a file without a name first, and into their place
// when they are known to be right.
//
// A file that replaces another one gets its attributes, is on the disk before it does, and
// does not replace any other that has come there meanwhile.
package outfile

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

// A File is an output. What is written to it gets to its place by Commit.
type File struct {
	*os.File             // without a name, or with a temporary one
	temp     string      // that name, or ""
	place    *Place      // or nil for a stream
	lent     bool        // the place is another's to be closed
	input    bool        // what is replaced is the input
	source   *os.File    // that, if ReplacesInput has found out
	changed  stamp       // when the old file had the attributes that this one got
	dates    fs.FileInfo // has the dates that the file is to have, or nil
	pipe     string      // a named pipe, which Commit opens: that waits for a reader
	stream   *os.File    // a pipe, a device or standard output
}

// Open prepares the output of the given name, which may be a file that there is or is not
// yet, a pipe, a character device, or Stdout. It is not touched before Commit. A new file
// gets the given permissions, less what the umask or a default ACL of its folder takes away;
// one that is there keeps its attributes.
func Open(out string, perm fs.FileMode) (*File, error) {
	o := &File{}
	if IsStdout(out) {
		if closed(os.Stdout) {
			return nil, errors.New("standard output is closed; redirect it, or name a file")
		}
		o.stream = os.Stdout
	} else if err := o.find(out); err != nil {
		return nil, err
	}
	if o.stream != nil && term.IsTerminal(int(o.stream.Fd())) {
		o.Close()
		return nil, errors.New("the output is a terminal; a file, or a pipe to another program, was expected")
	}
	if o.Stream() {
		var err error
		if o.File, err = Scratch(); err != nil {
			o.Close()
			return nil, err
		}
		return o, nil
	}
	if err := o.create(uint32(perm.Perm())); err != nil {
		o.Close()
		return nil, cannotWrite(filepath.Dir(out), err)
	}
	return o, nil
}

// closed reports whether a standard file was closed when the program started: Go opens the null device in its place, for
// reading and writing.
func closed(f *os.File) bool {
	info, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	if err != nil || nullErr != nil || !os.SameFile(info, null) {
		return false
	}
	_, err = f.Read(make([]byte, 1))
	return err == io.EOF
}

// Replace prepares an output that takes the place of a file that OpenInput has opened, and that
// is the input. The place is still the caller's to be closed, after the file.
func Replace(p *Place) (*File, error) {
	o := &File{place: p, lent: true, input: true}
	if err := o.create(0); err != nil {
		return nil, cannotWrite(filepath.Dir(p.path), err)
	}
	return o, nil
}

func cannotWrite(dir string, err error) error {
	return fmt.Errorf("cannot write to %s: %w", dir, Plain(err))
}

// find follows symbolic links to what is to be written.
func (o *File) find(out string) error {
	info, err := os.Stat(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("output %s: %w", out, Plain(err))
	}
	if err == nil {
		switch m := info.Mode(); {
		case m.IsRegular():
		case m&fs.ModeNamedPipe != 0:
			o.pipe = out
			return nil
		case m&fs.ModeCharDevice != 0:
			if o.stream, err = os.OpenFile(out, os.O_WRONLY, 0); err != nil {
				return fmt.Errorf("output %s: %w", out, Plain(err))
			}
			return nil
		default:
			return fmt.Errorf("output %s is a %s; a regular file, a pipe or a character device was expected", out, Kind(m))
		}
	}
	if o.place, err = locate(out); err != nil {
		return notLocated(out, err)
	}
	return o.hold(out, info)
}

// hold holds the file that is at the output's place, which info has described before, if
// it is not nil.
func (o *File) hold(out string, info fs.FileInfo) error {
	err := o.place.hold()
	if err == nil && info != nil {
		var now fs.FileInfo
		if now, err = o.place.old.Stat(); err == nil && os.SameFile(info, now) {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) && info == nil {
		return nil
	}
	o.place.Close()
	o.place = nil
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("output %s has no name of its own, or was replaced while it was opened", out)
	}
	return fmt.Errorf("output %s: %w", out, Plain(err))
}

// notLocated says why there is no place for an output.
func notLocated(out string, err error) error {
	var f *folderError
	switch missing := errors.As(err, &f) && errors.Is(f.err, fs.ErrNotExist); {
	case err == errNothing, missing && f.link:
		return fmt.Errorf("output %s is a symbolic link to nothing", out)
	case missing:
		return cannotWrite(f.dir, f.err)
	}
	return fmt.Errorf("output %s: %w", out, Plain(err))
}

// Stream reports whether the output is a pipe, a device or standard output, which has no
// attributes to be set.
func (o *File) Stream() bool { return o.stream != nil || o.pipe != "" }

// Replaces reports whether the output takes the place of another file.
func (o *File) Replaces() bool { return o.place != nil && o.place.old != nil }

// ReplacesInput notes whether the file that the output takes the place of is the given
// one, which is the input, and reports that.
func (o *File) ReplacesInput(src *os.File) (bool, error) {
	if !o.Replaces() || o.input {
		return o.input, nil
	}
	a, err := o.place.old.Stat()
	if err != nil {
		return false, err
	}
	b, err := src.Stat()
	if o.input = err == nil && os.SameFile(a, b); o.input {
		o.source = src
	}
	return o.input, err
}

// KeepDates has Finish give the file the dates of access and modification that info has, of a file that was opened
// as OpenInput and OpenRegular do. A stream has none.
func (o *File) KeepDates(info fs.FileInfo) { o.dates = info }

// Finish gives the file its attributes, and makes sure that all that was written to it has
// arrived. With sync, a file that replaces another one is on the disk afterwards: file systems
// may write that it has another name before they write what is in it.
func (o *File) Finish(sync bool) error {
	if o.Stream() {
		return nil
	}
	if o.Replaces() {
		if err := o.likeOld(); err != nil {
			return Plain(err)
		}
	}
	if err := o.date(); err != nil {
		return err
	}
	if sync && o.Replaces() {
		if err := o.Sync(); err != nil {
			return fmt.Errorf("writing to the disk: %w", Plain(err))
		}
	}
	return Flush(o.File)
}

// Commit puts what was written in its place.
func (o *File) Commit() error {
	switch {
	case o.Stream():
		return o.copyOut()
	case o.Replaces():
		return o.replace()
	}
	return o.appear()
}

// copyOut copies what was written to a stream.
func (o *File) copyOut() error {
	if o.pipe != "" {
		var err error
		if o.stream, err = os.OpenFile(o.pipe, os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("output %s: %w", o.pipe, Plain(err))
		}
	}
	if _, err := o.Seek(0, io.SeekStart); err != nil {
		return Plain(err)
	}
	_, err := io.Copy(o.stream, o.File)
	if err == nil {
		err = Flush(o.stream)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", Plain(err))
	}
	return nil
}

// Replaced returns the place where the output takes that of another file, or nil.
func (o *File) Replaced() *Place {
	if !o.Replaces() {
		return nil
	}
	return o.place
}

// SyncFolders makes sure that what became of names in the folders of places is on the disk. It
// syncs each folder once, and returns the errors.
func SyncFolders(places []*Place) map[*Place]error {
	failed := make(map[*Place]error)
	folders := make(map[folder]error)
	for _, p := range places {
		id, err := p.folder()
		if err == nil {
			done := false
			if err, done = folders[id]; !done {
				err = p.sync()
				folders[id] = err
			}
		}
		if err != nil {
			failed[p] = fmt.Errorf("it is in its place, but what becomes of it if the power fails is not known: %w", err)
		}
	}
	return failed
}

// Close gives up what is not in its place.
func (o *File) Close() {
	if o.File != nil {
		o.File.Close() // first, as Windows removes no file that is open
	}
	if o.temp != "" {
		names.Lock()
		_ = o.place.unlink(o.temp) // a second error would say nothing new
		o.forget()
		names.Unlock()
	}
	if o.place != nil && !o.lent {
		o.place.Close()
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
