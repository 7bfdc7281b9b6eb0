package outfile

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
)

// A file that is not finished has no name, so that nothing is left of it however the program
// ends: the file system forgets it. It gets a name when it goes to its place. Some file systems
// (NFS, FUSE, FAT) have no such files; there it has a name from the start, which Abandon knows.
//
// To replace a file takes a second name for a moment, as a link cannot replace another. Only
// a program that is killed in that moment leaves it behind. A later one does not remove it: that
// the file is nobody's cannot be known.

// prefix begins the names of files that are on their way.
const prefix = ".cfi2sframe-"

// names are those of files that are on their way. It is locked while one changes.
var names struct {
	sync.Mutex
	temporary map[*File]bool // those with a name of their own
}

// Abandon waits until no name changes, prevents that any ever does again, and removes those
// of files that are not finished. What follows can only be the end of the program.
func Abandon() {
	names.Lock()
	for o := range names.temporary {
		o.abandon() // there is nobody to be told
	}
}

// tryNames calls a function with names that nothing has, until one is free.
func tryNames(f func(name string) error) error {
	for range 100 {
		err := retry(func() error { return f(prefix + strconv.FormatUint(rand.Uint64(), 36)) })
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return syscall.EEXIST
}

// note notes that the file has a temporary name. The names are locked.
func (o *File) note(name string) {
	o.temp = name
	if names.temporary == nil {
		names.temporary = make(map[*File]bool)
	}
	names.temporary[o] = true
}

// forget notes that the temporary name is gone.
func (o *File) forget() {
	delete(names.temporary, o)
	o.temp = ""
}

// errMoved is the error of a place where another file is than there was.
var errMoved = errors.New("there is another file now, or none, than when the work began; nothing was written")
