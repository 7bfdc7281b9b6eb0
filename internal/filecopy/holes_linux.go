//go:build !portable

package filecopy

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// findData returns the first range between two offsets in a file that is not a hole. If the file has only holes there,
// the result is an empty range at end.
func findData(f *os.File, from, end int64) (begin, stop int64) {
	begin, err := f.Seek(from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // a hole up to the end of the file
		if info, err := f.Stat(); err == nil && info.Size() >= end {
			return end, end
		}
	}
	switch {
	case err != nil: // the file system does not support holes
		return from, end
	case begin >= end:
		return end, end
	}
	if stop, err = f.Seek(begin, unix.SEEK_HOLE); err != nil {
		return begin, end
	}
	return begin, min(stop, end)
}
