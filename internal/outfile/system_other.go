//go:build !linux || portable

package outfile

import (
	"cmp"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"
)

// These functions stand for those that only Linux has. The build tag portable uses them on Linux, for tests.

// holdFlags open a file to be described only.
const holdFlags = os.O_RDONLY | syscall.O_NONBLOCK

func nameless(string, fs.FileMode) *os.File { return nil }

func descriptorPath(*os.File) string { return "" }

func link(from, to string) error { return os.Link(from, to) }

// release closes the files on Windows, which renames no open file, and replaces none.
func (o *File) release() error {
	if runtime.GOOS != "windows" {
		return nil
	}
	err := o.File.Close()
	o.place.Close()
	if o.source != nil {
		o.source.Close()
	}
	return cmp.Or(err, o.date()) // closing may have changed the date
}

// StartSync makes Linux begin to write a file to the disk.
func (o *File) StartSync() {}

// Flush reports errors that some file systems of Linux have when a file is closed.
func Flush(*os.File) error { return nil }

// accessed returns the zero time: systems have the date of the last access in different places.
func accessed(fs.FileInfo) time.Time { return time.Time{} }

func (o *File) copyExtended() error { return nil }
