//go:build !portable

package filecopy

import (
	"os"

	"golang.org/x/sys/unix"
)

// data returns where the first bytes of a range of a file are that are not in a hole, and how
// many they are; 0 if there are none up to its end.
func data(f *os.File, from, n int64) (begin, length int64, err error) {
	begin, err = seek(f, from, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: // a hole up to the file's end, or after that, as Bytes finds out
		size, err := seek(f, 0, unix.SEEK_END)
		if err == nil && size < from+n {
			return from, n, nil
		}
		return from + n, 0, err
	case err == unix.EINVAL || err == unix.EOPNOTSUPP: // holes are not known here
		return from, n, nil
	case err != nil:
		return 0, 0, err
	case begin >= from+n:
		return from + n, 0, nil
	}
	end, err := seek(f, begin, unix.SEEK_HOLE)
	if err == unix.EINVAL || err == unix.EOPNOTSUPP {
		return begin, from + n - begin, nil
	}
	if err != nil {
		return 0, 0, err
	}
	return begin, min(end, from+n) - begin, nil
}

func seek(f *os.File, off int64, whence int) (int64, error) {
	for {
		at, err := unix.Seek(int(f.Fd()), off, whence)
		if err != unix.EINTR {
			return at, err
		}
	}
}

// block is what ranges that two files share have to be aligned to, in bytes; that of all
// file systems that can do it, as a rule.
const block = 4096

// share makes dst share blocks with src, as far as the file systems allow it (btrfs, XFS,
// bcachefs), and returns how much of the range that is, in bytes.
func share(dst, src *os.File, to, from, n int64) int64 {
	n &^= block - 1
	if n == 0 || from%block != 0 || to%block != 0 {
		return 0
	}
	if unix.IoctlFileCloneRange(int(dst.Fd()), &unix.FileCloneRange{
		Src_fd: int64(src.Fd()), Src_offset: uint64(from), Src_length: uint64(n), Dest_offset: uint64(to),
	}) != nil {
		return 0
	}
	return n
}

// reserve makes room on the disk for a range of the file. On ext4 that shows at once if there
// is none, and to write becomes a third faster. Others are left alone: btrfs does not
// compress what was reserved.
func reserve(dst *os.File, off, n int64) error {
	var fs unix.Statfs_t
	if n < 1<<20 || unix.Fstatfs(int(dst.Fd()), &fs) != nil || fs.Type != unix.EXT4_SUPER_MAGIC {
		return nil
	}
	err := unix.Fallocate(int(dst.Fd()), 0, off, n)
	if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
		return &os.PathError{Op: "write", Path: dst.Name(), Err: err}
	}
	return nil // a file without extents cannot have that, and it is not needed
}
