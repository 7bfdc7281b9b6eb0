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

// These functions replace those of system_linux.go. The build tag portable selects these functions on Linux, for tests.

// holdFlags are the flags for opening a file only to refer to it.
const holdFlags = os.O_RDONLY | syscall.O_NONBLOCK

func createUnnamed(string, fs.FileMode) *os.File { return nil }

func descriptorPath(*os.File) string { return "" }

func link(from, to string) error { return os.Link(from, to) }

// release closes the files on Windows, which cannot rename or replace open files.
func (o *File) release() error {
	if runtime.GOOS != "windows" {
		return nil
	}
	err := o.File.Close()
	o.place.Close()
	if o.source != nil {
		o.source.Close()
	}
	return cmp.Or(err, o.setDates()) // closing the file may have changed its modification time
}

// Flush has an effect on Linux only.
func Flush(*os.File) error { return nil }

// accessTime returns the zero time, because each system has a different field for the access time.
func accessTime(fs.FileInfo) time.Time { return time.Time{} }

func (o *File) copyExtended() error { return nil }
