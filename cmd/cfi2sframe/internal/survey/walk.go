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

// A candidate is a file to be examined.
type candidate struct {
	name    string
	archive bool
	err     error // the file or directory cannot be read
}

// walk finds the ELF files at and below the paths, sorted by name, and counts other files. It follows the symbolic
// links in the given paths, but none below them. Unreadable files and directories become candidates with an error.
func walk(ctx context.Context, paths []string, opt Options) (out []candidate, skipped Skipped, err error) {
	var all []candidate
	seen := make(map[inode.ID]int) // indexes in all
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, skipped, fmt.Errorf("%s: %w", path, outfile.Plain(err))
		}
		err = filepath.WalkDir(real, func(file string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			rel, _ := filepath.Rel(real, file) // cannot fail: real is a prefix of file
			c := candidate{name: filepath.Join(path, rel), err: err}
			if err == nil && !d.Type().IsRegular() {
				return nil
			}
			if err == nil {
				info, err := d.Info()
				c.err = err
				if id, known := inode.Of(info); err == nil && known {
					if i, ok := seen[id]; ok {
						all[i].name = min(all[i].name, c.name)
						return nil
					}
					seen[id] = len(all)
				}
			}
			all = append(all, c)
			return nil
		})
		if err != nil {
			return nil, skipped, err
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	all = slices.CompactFunc(all, func(a, b candidate) bool { return a.name == b.name })
	for _, c := range all {
		if ctx.Err() != nil {
			return nil, skipped, ctx.Err()
		}
		isOutput := opt.IsOutput != nil && opt.IsOutput(c.name)
		if !opt.Shard.contains(c.name) && !isOutput {
			continue
		}
		kind, skip := c.classify(opt.Objects)
		switch {
		case isOutput:
			if !skip {
				return nil, skipped, fmt.Errorf("%s is also the output; use another file", c.name)
			}
		case skip:
			skipped.add(kind)
		default:
			out = append(out, c)
		}
	}
	return out, skipped, nil
}

// classify decides from the first bytes of a file whether to skip it. If so, the returned Skipped counts this file.
func (c *candidate) classify(objects bool) (kind Skipped, skip bool) {
	var k fileKind
	if c.err == nil {
		k, c.err = peekFile(c.name)
	}
	switch {
	case c.err != nil:
		return kind, false
	case !k.elf && !k.archive:
		return Skipped{Other: 1}, true
	case (k.object || k.archive) && !objects:
		return Skipped{Objects: 1}, true
	}
	c.archive = k.archive
	return kind, false
}

// A fileKind says what a file is, judging by its first bytes.
type fileKind struct{ elf, archive, object bool }

func peekFile(name string) (fileKind, error) {
	f, info, err := outfile.OpenRegular(name) // the file may have been replaced since it was listed
	if err != nil {
		return fileKind{}, err
	}
	defer f.Close()
	return peek(filecopy.Sized(f, info.Size()))
}

// peek determines the kind of a file from its first bytes.
func peek(r io.ReaderAt) (fileKind, error) {
	b := make([]byte, elf.EI_NIDENT+2) // bytes up to e_type, which is at the same offset in both classes
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return fileKind{}, err
	}
	if n < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		is, err := archive.Is(r)
		return fileKind{archive: is}, err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	return fileKind{
		elf:    true,
		object: elf.Type(order.Uint16(b[elf.EI_NIDENT:])) == elf.ET_REL,
	}, nil
}
