package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/internal/files"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// walk returns paths with directories replaced by their regular files, in the order of their names, and the number of
// errors, which it prints. It does not follow symbolic links, enter other file systems such as /proc, or return the
// report of this run.
func (c *call) walk(paths []string, to *destination, quiet bool) (found []string, failed int) {
	fail := func(name string, err error) {
		complain(c.stderr, name, outfile.Plain(err))
		failed++
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == files.Stdin || err != nil || !info.IsDir() { // errors are reported when it is opened
			found = append(found, path)
			continue
		}
		// With the separator, a symbolic link means its directory.
		err = filepath.WalkDir(path+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
			switch {
			case c.ctx.Err() != nil:
				return c.ctx.Err()
			case err != nil:
				fail(name, err)
			case d.Type().IsRegular():
				if info, err := d.Info(); err == nil && to.isFile(info) {
					return nil
				}
				if name == files.Stdin {
					name = "." + string(filepath.Separator) + name
				}
				found = append(found, name)
			case d.IsDir():
				if here, err := d.Info(); err == nil && !inode.SameDevice(here, info) {
					if !quiet {
						complain(c.stderr, name, errors.New("is on another file system; skipped"))
					}
					return fs.SkipDir
				}
			}
			return nil
		})
		if err != nil { // the context has ended
			found = append(found, path)
		}
	}
	return found, failed
}
