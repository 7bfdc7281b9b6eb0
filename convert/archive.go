package convert

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
)

// archive converts an archive member by member. Members without CFI, and those that are not
// ELF, stay as they are; an error of any other kind is one of the archive. If all members stay, there is nothing to write
// but a copy.
func (c *conversion) archive() error {
	a, err := archive.Open(c.src, c.size)
	if err = cmp.Or(packageError(c.src, c.size), err); err != nil {
		return c.opt.keep(nil, err)
	}
	c.opt.starting(Work{Size: uint64(c.size), Archive: true})
	if err := c.opt.Budget.Spend(elffile.CostEntry, uint64(len(a.Members))); err != nil {
		return fmt.Errorf("archive of %d members: %w", len(a.Members), err)
	}
	w := archiveWriter{conversion: c, archive: a}
	changes := false
	for i := range a.Members {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		m := &a.Members[i]
		if m.Special() {
			err = w.keep(i)
		} else {
			err = c.member(a, i, &w)
			var k *kept
			if changes = changes || err == nil; errors.As(err, &k) {
				k.Member = m.Name
				c.res.Kept = append(c.res.Kept, k.Kept)
				err = w.keep(i)
			}
		}
		switch {
		case w.err != nil: // which is no member's
			return outfile.Plain(w.err)
		case err != nil:
			return fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
		}
	}
	switch {
	case w.writer != nil:
		return w.writer.Close()
	case changes: // which nobody wants to have written
		return nil
	case slices.ContainsFunc(c.res.Kept, func(k Kept) bool { return k.Reason == Current }):
		return c.stay(Current)
	}
	return c.stay(NoCFI)
}

// An archiveWriter writes an archive from the first member on that is not what it was.
type archiveWriter struct {
	*conversion
	archive *archive.Archive
	writer  *archive.Writer // or nil
	err     error           // of making the output
}

// start makes the output, with the first n members as they were.
func (w *archiveWriter) start(n int) error {
	if w.writer != nil {
		return nil
	}
	dst, err := w.open()
	if err != nil {
		return err
	}
	if w.writer, err = w.archive.NewWriter(w.ctx, dst); err != nil {
		return err
	}
	for i := range n {
		if err := w.writer.Keep(i); err != nil {
			return err
		}
	}
	return nil
}

// keep writes a member as it was.
func (w *archiveWriter) keep(i int) error {
	if w.writer == nil {
		return nil
	}
	return w.writer.Keep(i)
}

// add writes a member that is new.
func (w *archiveWriter) add(i int, t target) error {
	size, err := sizeOf(t)
	if err == nil {
		w.err = w.start(i)
		err = w.err
	}
	if err != nil {
		return err
	}
	return w.writer.Add(i, t, size)
}

// member converts one member of an archive, and adds it to w.
func (c *conversion) member(a *archive.Archive, i int, w *archiveWriter) error {
	m := &a.Members[i]
	contents := a.Contents(i)
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := contents.ReadAt(magic, 0); err != nil && err != io.EOF {
		return err
	} else if !bytes.Equal(magic[:n], []byte(elf.ELFMAG)) {
		return &kept{Kept{Reason: NotELF, Why: elffile.ErrNotELF}}
	}
	if err := c.opt.Budget.Spend(elffile.CostHeaders, 1); err != nil {
		return err
	}
	var dst target
	defer func() {
		if f, ok := dst.(io.Closer); ok {
			f.Close()
		}
	}()
	cov, err := c.elf(contents, m.Size, func() (target, error) {
		err := c.opt.Budget.Spend(elffile.CostFile, 1)
		if err == nil {
			dst, err = c.scratch()
		}
		return dst, err
	})
	if cov != nil {
		cov.File, cov.Output = fmt.Sprintf("%s(%s)", c.in, m.Name), c.out
		c.res.Coverage = append(c.res.Coverage, cov)
	}
	if err != nil || dst == nil {
		return err
	}
	return w.add(i, dst)
}
