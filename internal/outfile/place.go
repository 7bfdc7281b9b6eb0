//go:build linux && !portable

package outfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/inode"
)

// stamp is a time as the system has it.
type stamp = unix.Timespec

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

// folder identifies a folder.
type folder = inode.ID

// folder returns the place's.
func (p *Place) folder() (folder, error) { return idOf(p.dir) }

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

// sync writes the folder to the disk.
func (p *Place) sync() error {
	fd, err := openAt(int(p.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == unix.EACCES { // it cannot be read; the whole file system can be synced, which takes longer
		err = retry(func() error { return unix.Syncfs(int(p.old.Fd())) })
		if err == unix.EBADF { // nor can the file be, which is held as a path only; all file systems can be synced
			unix.Sync()
			err = nil
		}
		return err
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = retry(func() error { return unix.Fsync(fd) })
	if err == unix.EINVAL || err == unix.EOPNOTSUPP { // there is nothing like that on this file system
		return nil
	}
	return err
}

// StartSync makes the system begin to write a file to the disk that Finish is going to wait for.
func (o *File) StartSync() {
	if o.Replaces() {
		_ = unix.SyncFileRange(int(o.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // without it, it only takes longer
	}
}

// Flush reports errors that some file systems (NFS) have when a file is closed.
func Flush(f *os.File) error {
	return retry(func() error {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}
