// Package inode identifies files independently of their names.
package inode

import "io/fs"

// An ID identifies a file while it has a name or is open.
type ID struct{ dev, ino uint64 }

// SameDevice reports whether two files are on the same file system, or true if that is unknown.
func SameDevice(a, b fs.FileInfo) bool {
	x, okX := Of(a)
	y, okY := Of(b)
	return !okX || !okY || x.dev == y.dev
}
