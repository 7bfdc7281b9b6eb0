// Package filecopy copies parts of files: by sharing blocks where the file system can do that,
// and with holes where the source has them. One side or both may be memory instead.
package filecopy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A Target is what is written to. What is written at an offset after its end makes it so much longer;
// the bytes between are zero.
type Target interface {
	io.WriterAt
	Truncate(size int64) error
}

// Range copies n bytes of src at offset from to offset to of dst, where nothing was written
// yet. Offsets are in bytes. Where src is a file or a part of one, and dst is a file, the kernel does
// that, by sharing the blocks if the file system can, and holes stay holes. Range uses the positions of
// these files, and ends when ctx does.
func Range(ctx context.Context, dst Target, to int64, src io.ReaderAt, from, n int64) error {
	file, ok := dst.(*os.File)
	if !ok {
		return Bytes(ctx, dst, to, src, from, n)
	}
	if r, ok := src.(*io.SectionReader); ok {
		if outer, begin, size := r.Outer(); from+n <= size {
			src, from = outer, begin+from
		}
	}
	f, ok := src.(*os.File)
	if !ok {
		return Bytes(ctx, dst, to, src, from, n)
	}
	shared := share(file, f, to, from, n)
	to, from, n = to+shared, from+shared, n-shared
	for n > 0 {
		begin, length, err := data(f, from, n)
		if err != nil {
			return err
		}
		if length > 0 {
			if err := reserve(file, to+begin-from, length); err != nil {
				return err
			}
			if err := Bytes(ctx, dst, to+begin-from, f, begin, length); err != nil {
				return err
			}
		}
		done := begin + length - from
		to, from, n = to+done, from+done, n-done
		if n == 0 && length == 0 {
			return extend(file, to)
		}
	}
	return nil
}

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

// extend makes a file that ends in a hole as long as it has to be.
func extend(dst *os.File, size int64) error {
	info, err := dst.Stat()
	if err == nil && info.Size() < size {
		err = dst.Truncate(size)
	}
	return err
}

// Bytes is Range for a part of dst that something was written to, which it overwrites.
func Bytes(ctx context.Context, dst Target, to int64, src io.ReaderAt, from, n int64) error {
	if n == 0 {
		return nil
	}
	var r io.Reader = io.NewSectionReader(src, from, n)
	var w io.Writer = io.NewOffsetWriter(dst, to)
	if file, ok := dst.(*os.File); ok { // the kernel copies from file to file, by their positions
		if f, ok := src.(*os.File); ok {
			if _, err := f.Seek(from, io.SeekStart); err != nil {
				return err
			}
			r = f
		}
		if _, err := file.Seek(to, io.SeekStart); err != nil {
			return err
		}
		w = file
	}
	for left := n; left > 0; {
		n, err := io.CopyN(w, r, min(left, chunk))
		left -= n
		if err == io.EOF {
			return fmt.Errorf("the input ends %d bytes early; it was changed while it was read", left)
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how many bytes are copied before somebody asks whether they are still wanted.
const chunk = 8 << 20

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
