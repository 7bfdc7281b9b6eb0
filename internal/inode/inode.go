// Package inode identifies files, which can have several names.
package inode

import (
	"fmt"
	"io/fs"
)

// An ID is the same for all names of a file, as long as one of them exists.
type ID struct{ dev, ino uint64 }

// String returns the ID in a form that other processes can compare.
func (id ID) String() string { return fmt.Sprintf("%x:%x", id.dev, id.ino) }

// SameDevice reports whether two files are on the same file system, as far as that is known.
func SameDevice(a, b fs.FileInfo) bool {
	x, okX := Of(a)
	y, okY := Of(b)
	return !okX || !okY || x.dev == y.dev
}
