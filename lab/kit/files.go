package kit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"cfi2sframe/internal/inode"
)

// ELFFiles returns the 64-bit ELF files below the paths, sorted, with one name per hard-linked file.
func ELFFiles(paths ...string) ([]string, error) {
	var found []string
	seen := make(map[inode.ID]bool)
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrPermission) {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			id, _ := inode.Of(info)
			if !seen[id] && isELF(path) {
				found = append(found, path)
			}
			seen[id] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [5]byte
	n, _ := f.Read(b[:])
	return string(b[:n]) == "\x7fELF\x02"
}

// Spread returns up to n elements, evenly spaced; n = 0 returns all.
func Spread[T any](list []T, n int) []T {
	if n <= 0 || n >= len(list) {
		return list
	}
	out := make([]T, n)
	for i := range out {
		out[i] = list[i*len(list)/n]
	}
	return out
}

// Each calls fn for each element on two workers, numbered 0 and 1, and returns all errors.
func Each[T any](list []T, fn func(worker int, x T) error) error {
	work := make(chan T)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for x := range work {
				errs[i] = errors.Join(errs[i], fn(i, x))
			}
		})
	}
	for _, x := range list {
		work <- x
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}
