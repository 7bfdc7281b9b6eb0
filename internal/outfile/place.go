package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/inode"
)

// A Place is where a file is or will be: a name in a folder. The folder is held open, and so
// is the file that is there. Whatever becomes of the path meanwhile, the place stays the same,
// and another file that comes there can be told from the one that was there first, even if
// it has the same inode number.
type Place struct {
	path string
	dir  *os.File // for use as a starting point only (O_PATH)
	name string
	old  *os.File // the file that is there, or nil
}

// maxLinks is how many symbolic links are followed, one leading to the next. That is the
// kernel's limit, too.
const maxLinks = 40

// errNothing is what a symbolic link leads to that leads to nothing.
var errNothing = errors.New("a symbolic link to nothing")

// locate finds the place that a path leads to. Symbolic links are followed, once and for all.
func locate(path string) (*Place, error) {
	p := &Place{path: path}
	rest := path
	for range maxLinks {
		dir, name := split(rest)
		from := unix.AT_FDCWD
		if p.dir != nil {
			from = int(p.dir.Fd())
		}
		fd, err := openAt(from, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			p.Close()
			return nil, &folderError{filepath.Clean(dir), err, rest != path}
		}
		next := os.NewFile(uintptr(fd), dir)
		if p.dir != nil {
			p.dir.Close()
		}
		p.dir, p.name = next, name
		to, err := readLink(next, name)
		switch {
		case err == unix.EINVAL: // it is none
			return p, nil
		case err == unix.ENOENT && rest == path:
			return p, nil
		case err == unix.ENOENT:
			err = errNothing
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		rest = to
	}
	p.Close()
	return nil, unix.ELOOP
}

// A folderError is the error of a folder that cannot be opened.
type folderError struct {
	dir  string
	err  error
	link bool // a symbolic link led there
}

func (e *folderError) Error() string { return e.err.Error() }
func (e *folderError) Unwrap() error { return e.err }

// split divides a path into its folder and the name in there. What ends in a slash is a folder.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	dir, name = path[:i+1], path[i+1:]
	switch {
	case path == "":
		return "", ""
	case name == "" || name == "." || name == "..":
		return path, "."
	case dir == "":
		dir = "."
	}
	return dir, name
}

// openAt opens a file for this process only.
func openAt(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// retry calls a function until it is not interrupted by a signal.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// readLink returns what a symbolic link leads to.
func readLink(dir *os.File, name string) (string, error) {
	b := make([]byte, unix.PathMax)
	n := 0
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(int(dir.Fd()), name, b)
		return err
	})
	return string(b[:max(n, 0)]), err
}

// OpenInput opens the regular file that a path leads to, for reading, at its place. The caller
// closes the place, and by that the file.
func OpenInput(path string) (*Place, *os.File, fs.FileInfo, error) {
	p, err := locate(path)
	if err != nil {
		if err == errNothing {
			err = unix.ENOENT
		}
		return nil, nil, nil, Plain(err)
	}
	src, info, err := p.open()
	if err != nil {
		p.Close()
		return nil, nil, nil, Plain(err)
	}
	return p, src, info, nil
}

// open opens the regular file that is there, for reading.
func (p *Place) open() (*os.File, fs.FileInfo, error) {
	// Opening a pipe must not wait for a writer; what it is shows below.
	fd, err := openAt(int(p.dir.Fd()), p.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	r := waiting(fd, p.path)
	info, err := Regular(r)
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	p.old = r
	return r, info, nil
}

// OpenRegular opens a regular file, and describes it. Anything else is an error, and does not make it wait.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	r := waiting(fd, path)
	info, err := Regular(r)
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return r, info, nil
}

// waiting returns the file of a descriptor that was opened so that it did not wait, which reading it may do. Otherwise
// the runtime would start a thread that waits for files.
func waiting(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), name)
}

// Regular describes a file that is open. It is an error if that is no regular one.
func Regular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%v: a regular file was expected", Kind(info.Mode()))
	}
	return info, err
}

// hold notes the file that is there.
func (p *Place) hold() error {
	fd, err := openAt(int(p.dir.Fd()), p.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil && err != unix.ENOENT { // one that cannot be read can be replaced
		fd, err = openAt(int(p.dir.Fd()), p.name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	}
	if err == nil {
		p.old = waiting(fd, p.path)
	}
	return err
}

// Close lets go of the folder, and of the file.
func (p *Place) Close() {
	if p.dir != nil {
		p.dir.Close()
	}
	if p.old != nil {
		p.old.Close()
	}
}

// An Entry is the same for all paths that lead to the same place.
type Entry struct {
	dir  inode.ID
	name string
}

// entry returns the place's.
func (p *Place) entry() (Entry, error) {
	id, err := idOf(p.dir)
	return Entry{id, p.name}, err
}

// EntryOf returns the entry that a path leads to, where there is a file or not.
func EntryOf(path string) (Entry, error) {
	p, err := locate(path)
	if err != nil {
		return Entry{}, Plain(err)
	}
	defer p.Close()
	return p.entry()
}

// stat returns what the system knows of a file that is open.
func stat(f *os.File) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstat(int(f.Fd()), &st) })
	return st, err
}

// idOf identifies a file that is open.
func idOf(f *os.File) (inode.ID, error) {
	st, err := stat(f)
	return inode.OfStat(&st), err
}

// is reports whether the file of the given name in the place's folder is f.
func (p *Place) is(name string, f *os.File) (bool, error) {
	id, err := idOf(f)
	if err != nil {
		return false, err
	}
	return p.has(name, id)
}

// has reports whether the file of the given name in the place's folder has the ID, which is that of a
// file that is open.
func (p *Place) has(name string, id inode.ID) (bool, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(int(p.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err == unix.ENOENT {
		return false, nil
	}
	return err == nil && id == inode.OfStat(&st), err
}
