package survey

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// A candidate is a file that is to be examined.
type candidate struct {
	name    string
	path    int // index of the given path that led to it
	archive bool
	err     error // it, or the folder that it is, cannot be read
}

// A listing is what a walk has found.
type listing struct {
	files   []candidate
	skipped []Skipped // by path
}

// walk finds the ELF files that the paths are, or that are below them. Symbolic links are
// followed only where they are given; whatever has several names counts once. A file or
// folder that cannot be read is a candidate, with the error.
func walk(ctx context.Context, paths []string, objects bool) (*listing, error) {
	found := &listing{skipped: make([]Skipped, len(paths))}
	seen := make(inode.Seen)
	for i, given := range paths {
		root, err := filepath.EvalSymlinks(given)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", given, outfile.Plain(err))
		}
		err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			rel, _ := filepath.Rel(root, name) // name begins with root
			c := candidate{name: filepath.Join(given, rel), path: i, err: err}
			switch {
			case err != nil:
			case !d.Type().IsRegular():
				return nil
			default:
				var info fs.FileInfo
				if info, c.err = d.Info(); c.err == nil && !seen.First(info) {
					return nil
				}
			}
			found.file(c, objects)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// file adds a file if it is to be examined.
func (found *listing) file(c candidate, objects bool) {
	skipped := &found.skipped[c.path]
	var h head
	if c.err == nil {
		h, c.err = peekFile(c.name)
	}
	switch {
	case c.err != nil:
	case h.archive && objects:
		c.archive = true
	case h.archive:
		skipped.Objects++
		skipped.Archives++
		return
	case !h.elf:
		skipped.Other++
		return
	case h.object && !objects:
		skipped.Objects++
		return
	}
	found.files = append(found.files, c)
}

// A head is what the first bytes of a file say.
type head struct{ elf, archive, object, narrow bool }

func peekFile(name string) (head, error) {
	// Whatever took the file's place meanwhile must not be waited for.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return head{}, err
	}
	defer f.Close()
	return peek(f)
}

// peek reads the head of a file.
func peek(r io.ReaderAt) (head, error) {
	b := make([]byte, elf.EI_NIDENT+2) // up to e_type, which is at the same place in both classes
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return head{}, err
	}
	if n < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		is, err := archive.Is(r)
		return head{archive: is}, err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	return head{
		elf:    true,
		object: elf.Type(order.Uint16(b[elf.EI_NIDENT:])) == elf.ET_REL,
		narrow: elf.Class(b[elf.EI_CLASS]) == elf.ELFCLASS32,
	}, nil
}
