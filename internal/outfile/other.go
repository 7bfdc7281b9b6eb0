//go:build !linux || portable

package outfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"cfi2sframe/internal/inode"
)

// What the other files of this package do with what only Linux has is done here by what all systems
// have. A file that is on its way has a name, and goes to its place by a rename; whether the place is still
// as it was is looked at before that, and not in the same step. Of attributes, files that are
// replaced pass on their mode and, where there are any, owner and group.
//
// With the build tag portable it is used on Linux, too, for tests.

// A Place is where a file is or will be: a name in a folder.
type Place struct {
	path string
	dir  string // without symbolic links
	name string
	old  *os.File // the file that is there, or nil
}

// stamp would be a time.
type stamp struct{}

// folder identifies a folder.
type folder string

// folder returns the place's.
func (p *Place) folder() (folder, error) { return folder(p.dir), nil }

// real returns where the place is.
func (p *Place) real() string { return filepath.Join(p.dir, p.name) }

// locate finds the place that a path leads to.
func locate(path string) (*Place, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(path); e == nil {
			return nil, errNothing
		}
		dir := filepath.Dir(path)
		if real, err = filepath.EvalSymlinks(dir); err != nil {
			return nil, &folderError{dir, Plain(err), false}
		}
		real = filepath.Join(real, filepath.Base(path))
	}
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, Plain(err)
	}
	dir, name := filepath.Split(real)
	return &Place{path: path, dir: filepath.Clean(dir), name: name}, nil
}

// open opens the regular file that is there, for reading.
func (p *Place) open() (*os.File, fs.FileInfo, error) {
	r, info, err := OpenRegular(p.real())
	p.old = r
	return r, info, err
}

// OpenRegular opens a regular file, and describes it. Anything else is an error, and does not make it wait.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := Regular(r)
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return r, info, nil
}

// hold notes the file that is there.
func (p *Place) hold() error {
	var err error
	p.old, err = os.OpenFile(p.real(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return err
}

// Close lets go of the file.
func (p *Place) Close() {
	if p.old != nil {
		p.old.Close()
	}
}

func (p *Place) unlink(name string) error { return os.Remove(filepath.Join(p.dir, name)) }

// sync writes the folder to the disk, where the system can do that.
func (p *Place) sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(p.dir)
	if err != nil {
		return Plain(err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return Plain(err)
	}
	return nil
}

// StartSync is for systems that write a file to the disk while something else is done.
func (o *File) StartSync() {}

// Flush is for systems that tell of errors before a file is closed.
func Flush(*os.File) error { return nil }

// retry is for systems that interrupt calls.
func retry(f func() error) error { return f() }

// create makes the file in the folder of its place. A new file gets the mode, less what the umask
// takes away; one that replaces another can be read by nobody else until it gets the attributes of the other.
func (o *File) create(mode uint32) error {
	p := o.place
	if p.old != nil {
		mode = 0o600
	}
	names.Lock()
	defer names.Unlock()
	return tryNames(func(name string) (err error) {
		if o.File, err = os.OpenFile(filepath.Join(p.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(mode)); err == nil {
			o.note(name)
		}
		return err
	})
}

// abandon removes what is not finished, as the program ends.
func (o *File) abandon() {
	o.File.Close()
	_ = o.place.unlink(o.temp)
}

// likeOld gives the file mode, owner and group of the one that it replaces. An output that is not the input
// loses set-user-ID bits as by cp.
func (o *File) likeOld() error {
	info, err := o.place.old.Stat()
	if err != nil {
		return err
	}
	have, err := o.Stat()
	if err != nil {
		return err
	}
	if uid, gid, ok := inode.Owner(info); ok {
		if u, g, _ := inode.Owner(have); u != uid || g != gid {
			if err := o.Chown(uid, gid); err != nil {
				return o.notGiven(fmt.Sprintf("owner (user %d, group %d)", uid, gid), err)
			}
		}
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if !o.input && os.Geteuid() != 0 {
		mode &= fs.ModePerm
	}
	if runtime.GOOS == "windows" {
		return nil // read-only files cannot be replaced, and there is no other mode
	}
	if err := o.Chmod(mode); err != nil {
		return o.notGiven(fmt.Sprintf("mode (%v)", mode), err)
	}
	return nil
}

// date gives the file the date of modification that it is to have.
func (o *File) date() error {
	if o.dates == nil {
		return nil
	}
	if err := os.Chtimes(filepath.Join(o.place.dir, o.temp), time.Time{}, o.dates.ModTime()); err != nil {
		return fmt.Errorf("its dates cannot be given to the result: %w", Plain(err))
	}
	return nil
}

// notGiven says which attribute the result cannot have.
func (o *File) notGiven(what string, err error) error {
	if o.input {
		return fmt.Errorf("its %s cannot be given to the result: %w", what, Plain(err))
	}
	return fmt.Errorf("the %s of the output cannot be given to the result: %w", what, Plain(err))
}

// appear puts the file where there is none.
func (o *File) appear() error {
	p := o.place
	names.Lock()
	defer names.Unlock()
	_, err := os.Lstat(p.real())
	switch {
	case err == nil:
		return fmt.Errorf("output %s is there now, and was not when the work began", p.path)
	case !errors.Is(err, fs.ErrNotExist):
		return Plain(err)
	}
	return o.rename()
}

// replace puts the file in the place of the one that was there when the work began.
func (o *File) replace() error {
	p := o.place
	names.Lock()
	defer names.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	if err := o.likeOld(); err != nil { // again: they may have been changed
		return Plain(err)
	}
	return o.rename()
}

// check returns an error unless the old file is still there.
func (p *Place) check() error {
	old, err := p.old.Stat()
	if err != nil {
		return Plain(err)
	}
	now, err := os.Lstat(p.real())
	if err == nil && os.SameFile(old, now) {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return errMoved
	}
	return Plain(err)
}

// rename gives the file its name. Windows renames no file that is open, and replaces none.
func (o *File) rename() error {
	p := o.place
	if runtime.GOOS == "windows" {
		if err := o.File.Close(); err != nil {
			return Plain(err)
		}
		p.Close()
		if o.source != nil {
			o.source.Close()
		}
		if err := o.date(); err != nil { // to close it may have changed that
			return err
		}
	}
	if err := os.Rename(filepath.Join(p.dir, o.temp), p.real()); err != nil {
		return Plain(err)
	}
	o.forget()
	return nil
}

// Relink makes the name of a place another one (hard link) of the file that a path leads to and
// that has the given ID, if it is not yet. What is at the place must be what was there when
// OpenInput opened it.
func Relink(path string, id inode.ID, p *Place) error {
	from, file, info, err := OpenInput(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer from.Close()
	if now, ok := inode.Of(info); !ok || now != id {
		return fmt.Errorf("%s: %w", path, errMoved)
	}
	if now, err := os.Lstat(p.real()); err == nil && os.SameFile(now, info) {
		return nil
	}
	names.Lock()
	defer names.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	var temp string
	err = tryNames(func(name string) error {
		temp = filepath.Join(p.dir, name)
		return os.Link(file.Name(), temp)
	})
	if err != nil {
		return Plain(err)
	}
	if err := os.Rename(temp, p.real()); err != nil {
		return cmp.Or(os.Remove(temp), Plain(err))
	}
	return nil
}

// Scratch opens a file for temporary use, which is gone when it is closed or the program ends.
func Scratch() (*os.File, error) {
	names.Lock()
	defer names.Unlock()
	dir := os.TempDir()
	var f *os.File
	err := tryNames(func(name string) (err error) {
		f, err = scratch(filepath.Join(dir, name[1:]))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write to %s: %w", dir, Plain(err))
	}
	return f, nil
}
