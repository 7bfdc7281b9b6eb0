package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// likeInput gives the new file the input's owner, where that is permitted, its extended
// attributes and its mode bits. Without the owner it does not get the set-user-ID and
// set-group-ID bits either: they would mean something else. If it replaces the input,
// its capabilities must not get lost.
func likeInput(tmp, src *os.File, info fs.FileInfo, replace bool) error {
	keep := fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch err := tmp.Chown(int(st.Uid), int(st.Gid)); {
		case errors.Is(err, fs.ErrPermission):
			keep &^= fs.ModeSetuid | fs.ModeSetgid
		case err != nil:
			return err
		}
	}
	if err := copyAttributes(tmp, src); err != nil && replace {
		return fmt.Errorf("its file capabilities cannot be given to the result: %w", err)
	}
	// Last: the owner's change clears these bits, and without the permission to write
	// there are no more attributes.
	return tmp.Chmod(info.Mode() & keep)
}

// capabilities is the extended attribute that holds file capabilities.
const capabilities = "security.capability"

// copyAttributes gives the new file the input's extended attributes where that is
// permitted, and returns an error if that leaves out file capabilities. Signatures
// and hashes of the contents (security.ima, security.evm) would be wrong and are left
// out.
func copyAttributes(tmp, src *os.File) error {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(src.Fd()), names)
	if err != nil {
		return nil // the file system has none
	}
	value := make([]byte, 64<<10)
	var lost error
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name == "" || name == "security.ima" || name == "security.evm" {
			continue
		}
		n, err := unix.Fgetxattr(int(src.Fd()), name, value)
		if err == nil {
			err = unix.Fsetxattr(int(tmp.Fd()), name, value[:n], 0)
		}
		if err != nil && name == capabilities {
			lost = err
		}
	}
	return lost
}
