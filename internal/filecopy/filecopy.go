// Package filecopy copies parts of files: by sharing blocks where the file system can do that,
// and with holes where the source has them. One side or both may be memory instead.
package filecopy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
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
	src = unsized(src)
	file, ok := dst.(*os.File)
	if !ok {
		return Bytes(ctx, dst, to, src, from, n)
	}
	if r, ok := src.(*io.SectionReader); ok {
		if outer, begin, size := r.Outer(); from+n <= size {
			src, from = unsized(outer), begin+from
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
	src = unsized(src)
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
