package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// errNothing is what a symbolic link leads to that leads to nothing.
var errNothing = errors.New("a symbolic link to nothing")

// A folderError is the error of a folder that cannot be opened.
type folderError struct {
	dir  string
	err  error
	link bool // a symbolic link led there
}

func (e *folderError) Error() string { return e.err.Error() }
func (e *folderError) Unwrap() error { return e.err }

// OpenInput opens the regular file that a path leads to, for reading, at its place. The caller
// closes the place, and by that the file.
func OpenInput(path string) (*Place, *os.File, fs.FileInfo, error) {
	p, err := locate(path)
	if err != nil {
		if err == errNothing {
			err = syscall.ENOENT
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

// Regular describes a file that is open. It is an error if that is no regular one.
func Regular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%v: a regular file was expected", Kind(info.Mode()))
	}
	return info, err
}

// An Entry is the same for all paths that lead to the same place.
type Entry struct {
	dir  folder
	name string
}

// EntryOf returns the entry that a path leads to, where there is a file or not.
func EntryOf(path string) (Entry, error) {
	p, err := locate(path)
	if err != nil {
		return Entry{}, Plain(err)
	}
	defer p.Close()
	id, err := p.folder()
	return Entry{id, p.name}, err
}
