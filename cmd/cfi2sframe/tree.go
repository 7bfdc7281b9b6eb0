package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/internal/files"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// walk puts the regular files below directories in the place of these, in the order of their names. Symbolic links in there are
// not followed: what they lead to is converted where it is. Nor is it looked into what is mounted there, such as /proc in a
// system's root. Errors are printed, and counted.
func (s *settings) walk(ctx context.Context, stdout, stderr io.Writer) (failed int) {
	if !s.recursive || s.survey {
		return 0
	}
	var said *destination // the report, which may be in there, or nil
	if s.report != "none" {
		said = s.reportDestination(stdout, stderr)
	}
	var found []string
	fail := func(name string, err error) {
		complain(stderr, name, outfile.Plain(err))
		failed++
	}
	for _, given := range s.files {
		info, err := os.Stat(given)
		if given == files.Stdin || err != nil || !info.IsDir() { // what is wrong is said when it is opened
			found = append(found, given)
			continue
		}
		// With the separator the directory that a symbolic link leads to is meant.
		err = filepath.WalkDir(given+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				fail(name, err)
			case d.Type().IsRegular():
				if info, err := d.Info(); err == nil && said != nil && said.isFile(info) {
					return nil
				}
				if name == files.Stdin {
					name = "." + string(filepath.Separator) + name
				}
				found = append(found, name)
			case d.IsDir():
				if here, err := d.Info(); err == nil && !inode.SameDevice(here, info) {
					if !s.quiet {
						complain(stderr, name, errors.New("another file system, and so left out"))
					}
					return fs.SkipDir
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, context.Canceled):
			found = append(found, given) // so that it is named
		case err != nil:
			fail(given, err)
		}
	}
	s.files = found
	return failed
}
