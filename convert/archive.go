package convert

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
)

// errNotELF is why a member of an archive stays as it is.
var errNotELF = errors.New("not an ELF file")

// archive converts an archive member by member. Members without CFI, and those that are not
// ELF, stay as they are; an error of any other kind is one of the archive.
func (c *conversion) archive() error {
	a, err := archive.Open(c.src, c.size)
	if err != nil {
		return err
	}
	c.opt.starting(Work{Size: uint64(c.size), Archive: true})
	var w *archive.Writer // nil if nothing is written
	if !c.opt.DryRun {
		dst, err := c.open()
		if err != nil {
			return err
		}
		if w, err = a.NewWriter(c.ctx, dst); err != nil {
			return outfile.Plain(err)
		}
	}
	for i := range a.Members {
		m := &a.Members[i]
		keep := m.Special()
		if !keep {
			err := c.member(a, i, w)
			var k *kept
			switch {
			case err == nil:
			case errors.As(err, &k):
				c.res.Kept = append(c.res.Kept, Kept{m.Name, k.why})
				keep = true
			default:
				return fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
			}
		}
		if keep && w != nil {
			if err := w.Keep(i); err != nil {
				return fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
			}
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	if w == nil {
		return nil
	}
	return w.Close()
}

// member converts one member of an archive, and adds it to w unless that is nil.
func (c *conversion) member(a *archive.Archive, i int, w *archive.Writer) error {
	m := &a.Members[i]
	contents := a.Contents(i)
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := contents.ReadAt(magic, 0); err != nil && err != io.EOF {
		return err
	} else if !bytes.Equal(magic[:n], []byte(elf.ELFMAG)) {
		return &kept{errNotELF}
	}
	var dst target
	defer func() {
		if f, ok := dst.(io.Closer); ok {
			f.Close()
		}
	}()
	cov, err := c.elf(contents, m.Size, func() (target, error) {
		var err error
		dst, err = c.scratch()
		return dst, err
	})
	if err != nil {
		return err
	}
	if w != nil {
		size, err := sizeOf(dst)
		if err != nil {
			return err
		}
		if err := w.Add(i, dst, size); err != nil {
			return err
		}
	}
	if cov != nil {
		cov.File, cov.Output = fmt.Sprintf("%s(%s)", c.in, m.Name), c.out
		c.res.Coverage = append(c.res.Coverage, cov)
	}
	return nil
}
