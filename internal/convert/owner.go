package convert

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// likeInput gives the new file the input's mode bits and, where that is
// permitted, its owner. Without the owner it does not get the set-user-ID and
// set-group-ID bits either: they would mean something else.
func likeInput(tmp *os.File, info fs.FileInfo) error {
	keep := fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch err := tmp.Chown(int(st.Uid), int(st.Gid)); {
		case errors.Is(err, fs.ErrPermission):
			keep &^= fs.ModeSetuid | fs.ModeSetgid
		case err != nil:
			return err
		}
	}
	// After the owner, whose change clears these bits.
	return tmp.Chmod(info.Mode() & keep)
}
