//go:build !unix

package inode

import "io/fs"

// Of would return the ID of the file that info describes.
func Of(fs.FileInfo) (ID, bool) { return ID{}, false }

// Links is how many names (hard links) are known of a file.
func Links(fs.FileInfo) int { return 1 }

// Owner would return whom the file belongs to.
func Owner(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }
