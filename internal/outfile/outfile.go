// Package outfile writes files whole: a file has no name before it is complete.
//
// Before a file replaces an old file, it gets that file's attributes and is synced. The replacement fails if the old
// file is no longer in place. A file created between this check and the rename (microseconds) is lost: most systems
// cannot do both atomically.
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
)

// Stdout is the name of standard output.
const Stdout = "-"

// stdoutNames are other names of standard output. The file to which these names refer must be written, not replaced.
var stdoutNames = []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}

// IsStdout reports whether the output with the given name is standard output.
func IsStdout(out string) bool { return out == Stdout || slices.Contains(stdoutNames, out) }

// A File is an output. Until Commit, it has no name or a temporary name.
type File struct {
	*os.File
	temp   string      // path of the temporary file, or ""
	place  *Place      // nil for a stream
	lent   bool        // the caller closes the Place
	input  bool        // the output replaces the input
	source *os.File    // the input, if the output was made by Open and replaces it
	dates  fs.FileInfo // contains the timestamps for the result, or nil
	pipe   string      // a named pipe; Commit opens it, because opening it waits for a reader
	stream *os.File    // a pipe, a device or standard output
}

// Open prepares an output: a new or existing file, a pipe, a character device, or Stdout. The output is unchanged until
// Commit. A new file gets the permissions perm, subject to the umask or the directory's default ACL. An existing file
// keeps its attributes.
func Open(out string, perm fs.FileMode) (*File, error) {
	o := &File{}
	err := o.find(out)
	if err == nil && o.Stream() {
		o.File, err = Scratch()
	} else if err == nil {
		err = o.create(perm.Perm())
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// Replace prepares an output that replaces the input, which OpenInput has opened. The caller closes the Place after the
// File.
func Replace(p *Place) (*File, error) {
	o := &File{place: p, lent: true, input: true}
	if err := o.create(0); err != nil {
		return nil, err
	}
	return o, nil
}

// find examines the output.
func (o *File) find(out string) error {
	if IsStdout(out) {
		if closed(os.Stdout) {
			return errors.New("standard output is closed; redirect it, or name a file")
		}
		o.stream = os.Stdout
		return nil
	}
	info, err := os.Stat(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o.place, err = newPlace(out)
		return err
	case err != nil:
	case info.Mode().IsRegular():
		if o.place, err = existingPlace(out); errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("output %s has no name, or was replaced while it was opened", out)
		}
	case info.Mode()&fs.ModeNamedPipe != 0:
		o.pipe = out
	case info.Mode()&fs.ModeCharDevice != 0:
		o.stream, err = os.OpenFile(out, os.O_WRONLY, 0)
	default:
		return fmt.Errorf("output %s is a %s, not a regular file, a pipe or a character device", out, Kind(info.Mode()))
	}
	if err != nil {
		return fmt.Errorf("output %s: %w", out, Plain(err))
	}
	return nil
}

// closed reports whether a standard stream was closed when the process started, in which case Go opens the null device
// for reading and writing.
func closed(f *os.File) bool {
	info, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	if err != nil || nullErr != nil || !os.SameFile(info, null) {
		return false
	}
	_, err = f.Read(make([]byte, 1))
	return err == io.EOF
}

// create creates the file. If it replaces an old file, it is private until it gets the old file's attributes.
func (o *File) create(mode fs.FileMode) error {
	if o.Replaces() {
		mode = 0o600
	}
	dir := o.place.Dir()
	if o.File = createUnnamed(dir, mode); o.File != nil {
		return nil
	}
	names.Lock()
	defer names.Unlock()
	temp, err := tryNames(dir, func(path string) (err error) {
		o.File, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode) // nil after an error
		return err
	})
	if err != nil {
		return cannotWrite(filepath.Dir(o.place.path), err)
	}
	o.temp = temp
	names.temporary[o] = true
	return nil
}

func cannotWrite(path string, err error) error {
	return fmt.Errorf("cannot write to %s: %w", path, Plain(err))
}

// Full adds the path of the output to errors about a full disk or quota. Other errors may be due to the input.
func Full(path string, err error) error {
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, no) {
			return cannotWrite(path, err)
		}
	}
	return err
}

// currentPath returns a path by which the file can be found before Commit.
func (o *File) currentPath() string {
	if o.temp == "" {
		return descriptorPath(o.File)
	}
	return o.temp
}

// Stream reports whether the output is a pipe, a device or standard output, which keep their attributes.
func (o *File) Stream() bool { return o.stream != nil || o.pipe != "" }

// Device returns the device or standard output that Commit writes to, or nil.
func (o *File) Device() *os.File { return o.stream }

// Replaces reports whether the output replaces a file.
func (o *File) Replaces() bool { return o.place != nil && o.place.old != nil }

// Replaced returns the Place of the file that the output replaces, or nil.
func (o *File) Replaced() *Place {
	if !o.Replaces() {
		return nil
	}
	return o.place
}

// ReplacesInput reports and records whether the output replaces the given input.
func (o *File) ReplacesInput(src *os.File) (bool, error) {
	if !o.Replaces() || o.input {
		return o.input, nil
	}
	info, err := src.Stat()
	if o.input = err == nil && os.SameFile(info, o.place.info); o.input {
		o.source = src
	}
	return o.input, err
}

// Same reports whether the file that the output would replace has the same contents.
func (o *File) Same() (bool, error) {
	if o.Stream() {
		return false, nil
	}
	old, info, err := OpenRegular(o.place.real)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer old.Close()
	now, err := o.Stat()
	if err != nil || now.Size() != info.Size() {
		return false, err
	}
	return Equal(io.NewSectionReader(o.File, 0, now.Size()), old)
}

// KeepDates makes Finish set the access and modification times to those in info. Streams have no dates.
func (o *File) KeepDates(info fs.FileInfo) { o.dates = info }

// Finish sets the attributes of the file, and reports all write errors. If sync is set, Finish syncs a file that
// replaces an old file, because file systems may write the new name before the contents.
func (o *File) Finish(sync bool) error {
	if o.Stream() {
		return nil
	}
	if o.Replaces() {
		if err := o.copyAttributes(); err != nil {
			return Plain(err)
		}
	}
	if err := o.setDates(); err != nil {
		return err
	}
	if sync && o.Replaces() {
		if err := o.Sync(); err != nil {
			return fmt.Errorf("writing to the disk: %w", Plain(err))
		}
	}
	return Flush(o.File)
}

// setDates sets the timestamps of the file.
func (o *File) setDates() error {
	if o.dates == nil {
		return nil
	}
	if err := os.Chtimes(o.currentPath(), accessTime(o.dates), o.dates.ModTime()); err != nil {
		return fmt.Errorf("cannot copy its timestamps to the result: %w", Plain(err))
	}
	return nil
}

// Commit renames the output to its final name.
func (o *File) Commit() error {
	_, err := o.CommitNames(nil)
	return err
}

// CommitNames is like Commit, but also makes other names of the old file hard links to the output. Abandon waits for
// the last of them, because an interruption would part the names. There is an error for each of the others, unless err
// is set.
func (o *File) CommitNames(others []string) (errs []error, err error) {
	if o.Stream() {
		return nil, o.copyOut()
	}
	names.Lock()
	defer names.Unlock()
	if !o.Replaces() {
		return nil, Plain(o.publish())
	}
	info, err := o.Stat()
	if err == nil {
		err = o.replace()
	}
	if err != nil {
		return nil, Plain(err)
	}
	for _, path := range others {
		errs = append(errs, Plain(o.place.relink(path, info)))
	}
	return errs, nil
}

// copyOut copies the output to a stream.
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
		return cannotWrite(o.stream.Name(), err)
	}
	return nil
}

// publish gives a new file its final name.
func (o *File) publish() (err error) {
	p := o.place
	if o.temp == "" {
		err = link(o.currentPath(), p.real)
	} else if _, err = os.Lstat(p.real); err == nil {
		err = fs.ErrExist
	} else if errors.Is(err, fs.ErrNotExist) {
		if err = o.release(); err == nil {
			err = os.Rename(o.temp, p.real)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("output %s was created meanwhile", p.path)
	}
	return err
}

// replace replaces the old file with the output.
func (o *File) replace() error {
	if err := o.copyAttributes(); err != nil { // again, because the old file's attributes may have changed
		return err
	}
	temp := o.temp
	if temp == "" {
		var err error
		temp, err = tryNames(o.place.Dir(), func(path string) error { return link(o.currentPath(), path) })
		if err != nil {
			return err
		}
	}
	if err := o.release(); err != nil {
		return err
	}
	err := o.place.rename(temp)
	o.forget()
	return err
}

// Close removes the file unless Commit has given it its final name.
func (o *File) Close() {
	if o.File != nil {
		o.File.Close() // before Remove: Windows does not remove open files
	}
	if o.temp != "" {
		names.Lock()
		_ = os.Remove(o.temp) // does not exist after Commit; other errors were reported earlier
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
