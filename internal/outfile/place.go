package outfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// A Place is the path of a file that may exist. An existing file is held open, so that its inode number is not reused.
type Place struct {
	path string      // in messages
	real string      // without symbolic links
	old  *os.File    // the existing file, or nil
	info fs.FileInfo // of old
}

// errMoved is returned if the file at a Place was replaced or removed.
var errMoved = errors.New("the file was replaced or removed meanwhile; nothing was written")

// newPlace returns the Place of a file that does not exist.
func newPlace(path string) (*Place, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("output %s is a dangling symbolic link", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, cannotWrite(filepath.Dir(path), err)
	}
	return &Place{path: path, real: filepath.Join(dir, filepath.Base(path))}, nil
}

// existingPlace returns the Place of a file to replace, which need not be readable.
func existingPlace(path string) (*Place, error) {
	old, err := os.OpenFile(path, holdFlags, 0)
	if err != nil {
		return nil, err
	}
	p, err := placeOf(path, old)
	if err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// placeOf returns the Place of an open file. On error, it closes the file.
func placeOf(path string, old *os.File) (*Place, error) {
	info, err := old.Stat()
	real := ""
	if err == nil {
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		old.Close()
		return nil, err
	}
	return &Place{path, real, old, info}, nil
}

// OpenInput opens a regular file for reading. The caller closes the Place, which closes the file.
func OpenInput(path string) (*Place, *os.File, fs.FileInfo, error) {
	src, info, err := OpenRegular(path)
	if err != nil {
		return nil, nil, nil, Plain(err)
	}
	p, err := placeOf(path, src)
	return p, src, info, Plain(err)
}

// OpenRegular opens a regular file and returns it with its FileInfo. It rejects other files, without blocking on pipes.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is a %v, not a regular file", Kind(info.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// RealPath returns an absolute path without symbolic links. The file need not exist.
func RealPath(path string) (string, error) {
	real := path
	_, err := os.Stat(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(path)
	} else if errors.Is(err, fs.ErrNotExist) {
		var p *Place
		if p, err = newPlace(path); err == nil {
			real = p.real
		}
	}
	if err == nil {
		real, err = filepath.Abs(real)
	}
	return real, Plain(err)
}

// Close closes the file.
func (p *Place) Close() {
	if p.old != nil {
		p.old.Close()
	}
}

// Dir returns the directory of the file.
func (p *Place) Dir() string { return filepath.Dir(p.real) }

// check returns an error unless the old file is still in place.
func (p *Place) check() error {
	now, err := os.Lstat(p.real)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, p.info) {
		return errMoved
	}
	return err
}

// rename replaces the old file with the temporary file. If that fails, the temporary file is removed, or the error
// names it.
func (p *Place) rename(temp string) error {
	err := p.check()
	if err == nil {
		err = os.Rename(temp, p.real)
	}
	if err == nil {
		return nil
	}
	return removeAfter(err, temp)
}

// removeAfter removes a temporary file after the error err, and returns err.
func removeAfter(err error, temp string) error {
	if failed := os.Remove(temp); failed != nil {
		return fmt.Errorf("%w; cannot remove the temporary file %s: %w", Plain(err), filepath.Base(temp), Plain(failed))
	}
	return err
}

// relink makes another name of the old file a hard link to the new file, which has replaced the old one at p, unless
// the name leads there already.
func (p *Place) relink(path string, new fs.FileInfo) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if now, err := os.Lstat(real); err != nil || os.SameFile(now, new) {
		return err
	}
	other := &Place{path: path, real: real, info: p.info}
	temp, err := tryNames(other.Dir(), func(temp string) error { return link(p.real, temp) })
	if err != nil {
		return err
	}
	if now, err := os.Lstat(temp); err != nil || !os.SameFile(now, new) {
		return removeAfter(cmp.Or(err, errMoved), temp)
	}
	return other.rename(temp)
}

// SyncDirectory syncs a directory in which a file was replaced, where the system supports that.
func SyncDirectory(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) { // after a power failure, the old file may reappear
		return nil
	}
	if err == nil {
		err = d.Sync()
		d.Close()
	}
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("a power failure may restore old files, because the directory cannot be synced: %w",
			Plain(err))
	}
	return nil
}

// Plain removes the operation and path from a file system error, because messages already name the file.
func Plain(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	var s *os.SyscallError
	switch {
	case errors.As(err, &p):
		return Plain(p.Err)
	case errors.As(err, &l):
		return l.Err
	case errors.As(err, &s):
		return s.Err
	}
	return err
}

// Kind names the kind of a file that is not regular.
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

// Equal reports whether two streams of equal size have equal contents.
func Equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, end := io.ReadFull(a, x)
		if _, err := io.ReadFull(b, y[:n]); err != nil && err != io.EOF {
			return false, err
		}
		switch {
		case !bytes.Equal(x[:n], y[:n]):
			return false, nil
		case end == io.EOF || end == io.ErrUnexpectedEOF:
			return true, nil
		case end != nil:
			return false, end
		}
	}
}
