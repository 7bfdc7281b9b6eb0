package survey

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// A candidate is a file that may be examined.
type candidate struct {
	name    string
	path    int // index of the path that led to it
	archive bool
	err     error // it, or the directory that it is, cannot be read
}

// A finder walks through paths.
type finder struct {
	Options
	files []candidate
}

// walk finds the ELF files that the paths are, or that are below them, sorted by name, and counts others in the
// paths. Symbolic links are followed only if they are a path. A file with several names below a path counts once, for
// the first of them. Unreadable files and directories are candidates with an error.
func walk(ctx context.Context, paths []Part, opt Options) ([]candidate, error) {
	real := make([]string, len(paths))
	for i := range paths {
		real[i] = paths[i].real
		if abs, err := filepath.Abs(real[i]); err == nil {
			real[i] = abs
		}
	}
	around := enclosing(real)
	f := &finder{Options: opt}
	for i := range paths {
		paths[i].Partial = !opt.Shard.whole()
		if len(around(i)) > 0 {
			continue
		}
		if err := f.walk(ctx, i, paths[i].path, paths[i].real); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(f.files, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	var out []candidate
	for _, c := range f.files {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if opt.IsOutput != nil && c.err == nil && opt.IsOutput(c.name) {
			if f.examines(&c, new(Skipped)) {
				return nil, fmt.Errorf("%s is also the output; use another file", c.name)
			}
			c.archive = false
		}
		// Directories that cannot be listed are in all shards: on other machines their files may be readable.
		if (c.err != nil || opt.Shard.has(c.name)) && f.examines(&c, &paths[c.path].Skipped) {
			out = append(out, c)
		}
	}
	return out, nil
}

// walk adds the files below a path, which leads to real.
func (f *finder) walk(ctx context.Context, path int, name, real string) error {
	seen := make(map[inode.ID]int) // indexes in f.files
	return filepath.WalkDir(real, func(at string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rel, _ := filepath.Rel(real, at) // at begins with it
		c := candidate{name: filepath.Join(name, rel), path: path, err: err}
		switch {
		case err != nil:
		case !d.Type().IsRegular():
			return nil
		default:
			var info fs.FileInfo
			if info, c.err = d.Info(); c.err != nil {
				break
			}
			id, known := inode.Of(info)
			if i, ok := seen[id]; known && ok {
				f.files[i].name = min(f.files[i].name, c.name)
				return nil
			}
			if known {
				seen[id] = len(f.files)
			}
		}
		f.files = append(f.files, c)
		if f.Scanning != nil {
			f.Scanning(len(f.files))
		}
		return nil
	})
}

// examines reports whether a file is examined, by its first bytes.
func (f *finder) examines(c *candidate, skipped *Skipped) bool {
	var h head
	if c.err == nil {
		h, c.err = peekFile(c.name)
	}
	switch {
	case c.err != nil:
		return true
	case h.archive && f.Objects:
		c.archive = true
		return true
	}
	n := h.skipped(f.Objects)
	skipped.add(n)
	return n == Skipped{}
}

// A head is what the first bytes of a file say.
type head struct{ elf, archive, object bool }

// skipped counts the file if it is not examined. Archives are unless objects are not.
func (h *head) skipped(objects bool) Skipped {
	switch {
	case h.archive && !objects:
		return Skipped{Objects: 1, Archives: 1}
	case h.object && !objects:
		return Skipped{Objects: 1}
	case !h.elf && !h.archive:
		return Skipped{Other: 1}
	}
	return Skipped{}
}

func peekFile(name string) (head, error) {
	f, info, err := outfile.OpenRegular(name) // another file may have replaced it
	if err != nil {
		return head{}, err
	}
	defer f.Close()
	return peek(filecopy.Sized(f, info.Size()))
}

// peek reads the head of a file.
func peek(r io.ReaderAt) (head, error) {
	b := make([]byte, elf.EI_NIDENT+2) // up to e_type, which is at the same offset in both classes
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
	}, nil
}
