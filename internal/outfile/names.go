package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
)

// An unfinished file has no name, so that it vanishes however the process ends. Where unnamed files are not supported
// (NFS, FUSE, FAT, systems other than Linux), the file has a temporary name from the start.
//
// Replacing a file needs a temporary name for a moment, because link(2) does not overwrite. The temporary file is left
// behind only if the process is killed at that moment.

// If forceNamed is set, as in tests, all unfinished files have temporary names.
var forceNamed bool

// prefix is the prefix of temporary names.
const prefix = ".cfi2sframe-"

// names tracks the files that have temporary names. The lock is held while a temporary name exists but is not
// registered.
var names = struct {
	sync.Mutex
	temporary map[*File]bool
}{temporary: make(map[*File]bool)}

// Abandon blocks further name changes, and removes unfinished files. The process must end afterwards.
func Abandon() {
	names.Lock()
	for o := range names.temporary {
		o.File.Close() // Windows does not remove open files
		_ = os.Remove(o.temp)
	}
}

// tryNames calls f with random paths in a directory, up to 100 times while f returns fs.ErrExist, and returns the last
// path.
func tryNames(dir string, f func(path string) error) (path string, err error) {
	for range 100 {
		path = filepath.Join(dir, prefix+strconv.FormatUint(rand.Uint64(), 36))
		if err = f(path); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return path, err
}

// forget records that the temporary name is gone.
func (o *File) forget() {
	delete(names.temporary, o)
	o.temp = ""
}

// deleteOnClose is Windows' FILE_FLAG_DELETE_ON_CLOSE.
const deleteOnClose = 0x0400_0000

// Scratch opens a temporary file, which is removed when it is closed or the process ends.
func Scratch() (f *os.File, err error) {
	dir, flags := os.TempDir(), os.O_RDWR|os.O_CREATE|os.O_EXCL
	if f = createUnnamed(dir, 0o600); f != nil {
		return f, nil
	}
	if runtime.GOOS == "windows" {
		flags |= deleteOnClose
	}
	names.Lock()
	defer names.Unlock()
	path, err := tryNames(dir, func(path string) (err error) {
		f, err = os.OpenFile(path, flags, 0o600)
		return err
	})
	if err == nil && runtime.GOOS != "windows" {
		err = os.Remove(path)
	}
	if err != nil {
		f.Close()
		if err = cannotWrite(dir, err); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; set TMPDIR to another directory", err)
		}
		return nil, err
	}
	return f, nil
}
