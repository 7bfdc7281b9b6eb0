package convert

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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

// copyAttributes gives the new file the input's extended attributes, file
// capabilities among them, where that is permitted. Signatures and hashes of the
// contents (security.ima, security.evm) would be wrong and are left out.
func copyAttributes(tmp, src *os.File) {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(src.Fd()), names)
	if err != nil {
		return // the file system has none
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name == "" || name == "security.ima" || name == "security.evm" {
			continue
		}
		if n, err := unix.Fgetxattr(int(src.Fd()), name, value); err == nil {
			_ = unix.Fsetxattr(int(tmp.Fd()), name, value[:n], 0)
		}
	}
}
