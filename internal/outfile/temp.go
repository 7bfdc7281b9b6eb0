//go:build linux && !portable

package outfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/inode"
)

// named says that files are to have names, as a test of file systems without nameless ones.
var named bool

// abandon removes what is not finished, as the program ends.
func (o *File) abandon() { _ = o.place.unlink(o.temp) }

// create makes the file in the folder of its place. A new file gets the mode, less what
// the umask or a default ACL of the folder takes away; one that replaces another can be
// read by nobody else until it gets the attributes of the other.
func (o *File) create(mode uint32) error {
	p := o.place
	if p.old != nil {
		mode = 0o600
	}
	if !named {
		fd, err := openAt(int(p.dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR, mode)
		if err == nil {
			o.File = os.NewFile(uintptr(fd), p.path)
			if o.linkable() {
				return nil
			}
			o.File.Close()
			o.File = nil
		} else if err != unix.EOPNOTSUPP && err != unix.EISDIR && err != unix.ENOENT && err != unix.EINVAL && err != unix.ENOSYS {
			return err
		}
	}
	names.Lock()
	defer names.Unlock()
	return tryNames(func(name string) error {
		fd, err := openAt(int(p.dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW, mode)
		if err != nil {
			return err
		}
		o.File = os.NewFile(uintptr(fd), p.path)
		o.note(name)
		return nil
	})
}

// procPath returns how the kernel finds a file that is open: what has no name has this one, where
// /proc is mounted.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// linkable reports whether a file without a name can get one.
func (o *File) linkable() bool {
	var a, b unix.Stat_t
	return unix.Stat(procPath(o.File), &a) == nil && unix.Fstat(int(o.Fd()), &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// link gives a file without a name one in its folder.
func (o *File) link(name string) error {
	return retry(func() error {
		return unix.Linkat(unix.AT_FDCWD, procPath(o.File), int(o.place.dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	})
}

func (p *Place) unlink(name string) error {
	remove := func() error { return unix.Unlinkat(int(p.dir.Fd()), name, 0) }
	if err := retry(remove); err == nil || err == unix.ENOENT {
		return nil
	}
	return retry(remove) // to leave it behind is worth another try
}

// appear puts the file where there is none.
func (o *File) appear() error {
	p := o.place
	names.Lock()
	defer names.Unlock()
	var err error
	switch {
	case o.temp == "":
		err = o.link(p.name)
	default:
		if err = p.rename(o.temp, p.name, unix.RENAME_NOREPLACE); unsupported(err) {
			err = p.appearByName(o.temp)
		}
		if err == nil {
			o.forget()
		}
	}
	if err == unix.EEXIST {
		return fmt.Errorf("output %s is there now, and was not when the work began", p.path)
	}
	return err
}

// appearByName gives a file another name, where that takes two steps.
func (p *Place) appearByName(temp string) error {
	dir := int(p.dir.Fd())
	err := retry(func() error { return unix.Linkat(dir, temp, dir, p.name, 0) })
	if err == nil {
		return p.unlink(temp)
	}
	if err == unix.EEXIST {
		return err
	}
	// There are no links. The last moment is the best that can be had.
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW); err {
	case unix.ENOENT:
		return p.rename(temp, p.name, 0)
	case nil:
		return unix.EEXIST
	default:
		return err
	}
}

// unsupported reports whether the kernel or the file system does not know a kind of rename.
// Some filters of system calls say that it is not permitted.
func unsupported(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EPERM
}

func (p *Place) rename(from, to string, flags uint) error {
	dir := int(p.dir.Fd())
	return retry(func() error {
		if flags == 0 {
			return unix.Renameat(dir, from, dir, to)
		}
		return unix.Renameat2(dir, from, dir, to, flags)
	})
}

// replace puts the file in the place of the one that was there when the work began.
func (o *File) replace() error {
	p := o.place
	names.Lock()
	defer names.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	if err := o.likeStill(); err != nil {
		return err
	}
	old, err := p.exchangeable()
	if err != nil {
		return err
	}
	name := o.temp
	if name == "" {
		err := tryNames(func(s string) error {
			name = s
			return o.link(s)
		})
		if err != nil {
			return err
		}
	}
	err = p.swap(name, o.File, old)
	o.forget()
	return err
}

// check returns an error unless the old file is still there.
func (p *Place) check() error {
	same, err := p.is(p.name, p.old)
	if err == nil && !same {
		err = errMoved
	}
	return err
}

// swap puts the file with a temporary name in the place of the old one. Both are exchanged in one
// step, and looked at afterwards: if somebody has put a third file there since check, which
// is possible until the last moment, it goes back, and is not lost as it would be by a
// rename. Without the old file's ID, and where there is no exchange, there is that moment. The
// temporary name is gone afterwards, or the error says why not.
func (p *Place) swap(temp string, file *os.File, old *inode.ID) error {
	err := error(unix.EINVAL)
	if old != nil {
		err = p.rename(temp, p.name, unix.RENAME_EXCHANGE)
	}
	if unsupported(err) {
		if err = p.check(); err == nil {
			err = p.rename(temp, p.name, 0)
		}
		if err == nil {
			return nil
		}
	}
	if err == unix.ENOENT {
		err = errMoved
	}
	if err != nil {
		return p.remove(temp, err)
	}
	if same, err := p.has(temp, *old); err != nil || !same {
		return p.swapBack(temp, file, err)
	}
	if err := p.unlink(temp); err != nil {
		return fmt.Errorf("it is in its place, but what was there could not be removed and is %s now: %w", temp, err)
	}
	return nil
}

// swapBack undoes an exchange that brought out another file than the old one, or one that
// cannot be looked at for the given reason.
func (p *Place) swapBack(temp string, file *os.File, cause error) error {
	if cause == nil {
		cause = errMoved
	}
	if err := p.rename(temp, p.name, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("%w; what was there is %s now: %w", cause, temp, err)
	}
	if same, err := p.is(temp, file); err != nil || !same {
		return fmt.Errorf("%w; a file that came there in the same moment is %s now", cause, temp)
	}
	return p.remove(temp, cause)
}

// remove takes a temporary name away after an error, and returns that.
func (p *Place) remove(temp string, cause error) error {
	if err := p.unlink(temp); err != nil {
		return fmt.Errorf("%w; %s is left behind: %w", cause, temp, err)
	}
	return cause
}

// Relink makes the name of a place another one (hard link) of the file that a path leads to and
// that has the given ID, if it is not yet. What is at the place must be what was there when
// OpenInput opened it.
func Relink(path string, id inode.ID, p *Place) error {
	from, file, _, err := OpenInput(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer from.Close()
	if now, err := idOf(file); err != nil || now != id {
		return fmt.Errorf("%s: %w", path, cmp.Or(err, errMoved))
	}
	if same, err := p.is(p.name, file); err != nil || same {
		return err
	}
	names.Lock()
	defer names.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	old, err := p.exchangeable()
	if err != nil {
		return err
	}
	var temp string
	err = tryNames(func(name string) error {
		temp = name
		return unix.Linkat(int(from.dir.Fd()), from.name, int(p.dir.Fd()), name, 0)
	})
	if err != nil {
		return err
	}
	if same, err := p.is(temp, file); err != nil || !same {
		if err == nil {
			err = errMoved
		}
		return p.remove(temp, err)
	}
	return p.swap(temp, file, old)
}

// exchangeable returns the ID of the old file, or nil where an exchange would copy that, only for it
// to be removed: in a lower layer of an overlay (containers). It is asked before there is a
// temporary name, so that there is one for as short as possible.
func (p *Place) exchangeable() (*inode.ID, error) {
	var st unix.Statfs_t
	if unix.Fstatfs(int(p.dir.Fd()), &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return nil, nil
	}
	id, err := idOf(p.old)
	return &id, err
}

// Scratch opens a file for temporary use, which is gone when it is closed or the program ends.
func Scratch() (*os.File, error) {
	dir := os.TempDir()
	if !named {
		if fd, err := openAt(unix.AT_FDCWD, dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR, 0o600); err == nil {
			return os.NewFile(uintptr(fd), filepath.Join(dir, "scratch file")), nil
		}
	}
	names.Lock()
	defer names.Unlock()
	f, err := os.CreateTemp(dir, prefix[1:]+"*")
	if err != nil {
		return nil, fmt.Errorf("cannot write to %s: %w", dir, Plain(err))
	}
	if err := os.Remove(f.Name()); err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
		f.Close()
		return nil, Plain(err)
	}
	return f, nil
}
