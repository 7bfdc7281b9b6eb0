//go:build unix

package inode

import (
	"io/fs"
	"syscall"
)

// Of returns the ID of a file, and reports whether the file has one.
func Of(info fs.FileInfo) (ID, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, false
	}
	return ID{uint64(st.Dev), uint64(st.Ino)}, true
}

// Links returns the number of hard links of a file.
func Links(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}

// Owner returns the user and group of a file, and reports whether they are known.
func Owner(info fs.FileInfo) (uid, gid int, ok bool) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid), true
	}
	return 0, 0, false
}
