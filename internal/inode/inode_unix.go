//go:build unix

package inode

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of returns the ID of the file that info describes, and whether the file system has any.
func Of(info fs.FileInfo) (ID, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, false
	}
	return ID{uint64(st.Dev), uint64(st.Ino)}, true
}

// OfStat returns the ID of the file that st describes.
func OfStat(st *unix.Stat_t) ID { return ID{uint64(st.Dev), uint64(st.Ino)} }

// Links is how many names (hard links) a file has.
func Links(info fs.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return int(st.Nlink)
}

// Owner returns whom the file belongs to, and whether the system knows.
func Owner(info fs.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}
