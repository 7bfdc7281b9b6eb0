//go:build !unix

package inode

import "io/fs"

// Of returns no ID.
func Of(fs.FileInfo) (ID, bool) { return ID{}, false }

// Links returns 1, because the number of hard links is unknown.
func Links(fs.FileInfo) int { return 1 }

// Owner returns no owner.
func Owner(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }
