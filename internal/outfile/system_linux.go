//go:build !portable

package outfile

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// holdFlags are the flags for opening a file only to refer to it, which needs no read permission.
const holdFlags = unix.O_PATH

// createUnnamed creates an unnamed file in a directory. If the system does not support unnamed files, or could not link
// them, the result is nil.
func createUnnamed(dir string, mode fs.FileMode) *os.File {
	if forceNamed {
		return nil
	}
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, mode)
	if err != nil {
		return nil
	}
	a, errA := f.Stat()
	b, errB := os.Stat(descriptorPath(f))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		f.Close()
		return nil
	}
	return f
}

// descriptorPath returns a path to an open file, which requires /proc.
func descriptorPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// link adds a name to a file, which may have none.
func link(from, to string) error {
	return retry(func() error { return unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW) })
}

// release does nothing, because Linux can rename and replace open files.
func (o *File) release() error { return nil }

// retry repeats a call until no signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// Flush reports errors that some file systems (NFS) report only when a file is closed.
func Flush(f *os.File) error {
	return retry(func() error {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

// accessTime returns the time of the last access, or the zero time if it is unknown.
func accessTime(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Atim.Unix())
	}
	return time.Time{}
}

const (
	aclName          = "system.posix_acl_access"
	capabilitiesName = "security.capability"
	maxExtended      = 64 << 10 // maximum bytes of a value, and of all names (xattr(7))
)

// signatures lists attributes that sign the old contents. The kernel recreates these attributes if needed.
var signatures = []string{"security.ima", "security.evm"}

// copyExtended copies the extended attributes of the old file, including the ACL, and removes an ACL inherited from the
// directory.
func (o *File) copyExtended() error {
	from, to, b := o.place.real, int(o.Fd()), make([]byte, maxExtended)
	read := func(f func([]byte) (int, error)) (string, error) {
		n := 0
		err := retry(func() (err error) {
			n, err = f(b)
			return err
		})
		return string(b[:max(n, 0)]), err
	}
	have := func(name string) (string, error) {
		return read(func(b []byte) (int, error) { return unix.Fgetxattr(to, name, b) })
	}
	list, err := read(func(b []byte) (int, error) { return unix.Llistxattr(from, b) })
	if err != nil && err != unix.EOPNOTSUPP {
		return fmt.Errorf("cannot read the extended attributes of %s: %w", o.place.path, err)
	}
	names := strings.FieldsFunc(list, func(r rune) bool { return r == 0 })
	if _, err := have(aclName); err != unix.ENODATA && err != unix.EOPNOTSUPP && !slices.Contains(names, aclName) {
		if err == nil {
			err = retry(func() error { return unix.Fremovexattr(to, aclName) })
		}
		if err != nil {
			return fmt.Errorf("cannot remove the ACL that the result inherits from its directory: %w", err)
		}
	}
	for _, name := range names {
		if slices.Contains(signatures, name) || name == capabilitiesName && !o.input {
			continue
		}
		value, err := read(func(b []byte) (int, error) { return unix.Lgetxattr(from, name, b) })
		if err == unix.ENODATA { // removed meanwhile
			continue
		}
		// Setting an equal value again may not be permitted.
		if old, failed := have(name); err == nil && (failed != nil || old != value) {
			err = retry(func() error { return unix.Fsetxattr(to, name, []byte(value), 0) })
		}
		if err != nil {
			return o.attributeError("extended attribute "+name, "", err)
		}
	}
	return nil
}
