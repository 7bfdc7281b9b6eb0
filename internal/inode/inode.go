// Package inode tells files apart from their names, of which one can have several.
package inode

import (
	"fmt"
	"io/fs"
)

// An ID is the same for all names of a file, as long as one of them is there.
type ID struct{ dev, ino uint64 }

// String returns the ID in a form that other processes can compare.
func (id ID) String() string { return fmt.Sprintf("%x:%x", id.dev, id.ino) }

// Seen are files that were met.
type Seen map[ID]bool

// First adds the file that info describes, and reports whether it was met for the first
// time. Without an ID it always is.
func (s Seen) First(info fs.FileInfo) bool {
	id, ok := Of(info)
	first := !ok || !s[id]
	if ok {
		s[id] = true
	}
	return first
}

// SameDevice reports whether the files that a and b describe are on the same file system, as far as that is known.
func SameDevice(a, b fs.FileInfo) bool {
	x, okX := Of(a)
	y, okY := Of(b)
	return !okX || !okY || x.dev == y.dev
}
