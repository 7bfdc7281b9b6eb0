package survey

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/pack"
)

// A candidate is a file that is to be examined.
type candidate struct {
	name    string
	path    int  // index of the given path that led to it
	given   bool // it is that path itself
	archive bool
	pack    bool  // a package; this can be a folder
	err     error // it, or the folder that it is, cannot be read
}

// A listing is what a walk has found.
type listing struct {
	files   []candidate // by name
	skipped []Skipped   // by path
	divided Division    // of a shard
}

// A finder walks through paths.
type finder struct {
	listing
	Options
	all []sized // for a shard, before it is known what is in it
}

// walk finds the ELF files that the roots are, or that are below them. Symbolic links are followed only where they are given.
// What has several names below a root counts once, for the first of them. A file or folder that cannot be read is a candidate,
// with the error.
func walk(ctx context.Context, roots []root, opt Options) (*listing, error) {
	f := &finder{Options: opt, listing: listing{skipped: make([]Skipped, len(roots))}}
	cover := covers(absolute(roots))
	for i := range roots {
		if cover[i] >= 0 {
			continue
		}
		if err := f.root(ctx, i, &roots[i]); err != nil {
			return nil, err
		}
	}
	if !opt.Shard.whole() {
		var own []candidate
		own, f.divided = opt.Shard.pick(f.all)
		for _, c := range own {
			f.add(c)
		}
	}
	slices.SortFunc(f.files, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	return &f.listing, nil
}

// root walks through one of the paths.
func (f *finder) root(ctx context.Context, path int, r *root) error {
	seen := make(map[inode.ID]int) // where the file is in f.files or f.all, or -1
	return filepath.WalkDir(r.real, func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rel, _ := filepath.Rel(r.real, name) // name begins with it
		c := candidate{name: filepath.Join(r.name, rel), path: path, given: rel == ".", err: err}
		var id inode.ID
		var known bool
		var size int64
		switch {
		case err != nil:
		case d.IsDir() && f.opens(&c) && pack.IsDir(name):
			c.pack = true
			size, c.err = pack.DirSize(name)
			f.found(c, size)
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		default:
			var info fs.FileInfo
			if info, c.err = d.Info(); c.err != nil {
				break
			}
			size = info.Size()
			if id, known = inode.Of(info); !known {
				break
			}
			if i, ok := seen[id]; ok {
				f.alias(i, c.name)
				return nil
			}
		}
		i := f.found(c, size)
		if known {
			seen[id] = i
		}
		return nil
	})
}

// opens reports whether a file or a folder is opened if it is a package.
func (f *finder) opens(c *candidate) bool { return c.given || f.Packages }

// found adds a file that was met, and returns where it is, or -1.
func (f *finder) found(c candidate, size int64) int {
	if !f.Shard.whole() {
		if c.err != nil {
			size = 0
		}
		f.all = append(f.all, sized{c, uint64(max(size, 0))})
		return len(f.all) - 1
	}
	if !f.add(c) {
		return -1
	}
	return len(f.files) - 1
}

// alias gives the file at an index another name, if that is the first.
func (f *finder) alias(i int, name string) {
	switch {
	case i < 0:
	case f.Shard.whole():
		f.files[i].name = min(f.files[i].name, name)
	default:
		f.all[i].name = min(f.all[i].name, name)
	}
}

// add adds a file if it is to be examined, and reports whether it is.
func (f *finder) add(c candidate) bool {
	skipped := &f.skipped[c.path]
	var h head
	if c.err == nil && !c.pack {
		h, c.err = peekFile(c.name)
	}
	if c.err == nil && !c.pack && !h.elf && f.opens(&c) {
		c.pack, c.err = pack.Is(c.name)
	}
	switch {
	case c.err != nil:
	case c.pack:
	case h.archive && f.Objects:
		c.archive = true
	case h.archive:
		skipped.Objects++
		skipped.Archives++
		return false
	case !h.elf:
		skipped.Other++
		return false
	case h.object && !f.Objects:
		skipped.Objects++
		return false
	}
	f.files = append(f.files, c)
	return true
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
	info, err := f.Stat()
	if err != nil {
		return head{}, err
	}
	return peek(filecopy.Sized(f, info.Size()))
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
		if !is {
			return head{}, err
		}
		deb, err := pack.IsDeb(r) // in which no member is ELF
		return head{archive: !deb}, err
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
