package convert

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"io"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
)

// archive converts an archive member by member. Members without CFI, and those that are not ELF files, are unchanged.
// Any other error of a member is one of the archive. The output is made when the first member changes. If the file is
// no archive that can be converted, archive returns the reason.
func (c *conversion) archive() (*Kept, error) {
	a, err := archive.Open(c.src, c.size)
	if err = cmp.Or(packageError(c.src, c.size), err); err != nil {
		return c.opt.kept(nil, err)
	}
	c.opt.starting(Work{Size: uint64(c.size), Archive: true})
	if err := c.opt.Budget.Spend(elffile.CostEntry, uint64(len(a.Members))); err != nil {
		return nil, fmt.Errorf("archive of %d members: %w", len(a.Members), err)
	}
	w := &archiveWriter{archive: a}
	stays, changes := NoCFI, false
	for i := range a.Members {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		m := &a.Members[i]
		var kept *Kept
		if !m.Special() {
			kept, err = c.member(w, i)
			changes = changes || kept == nil
		}
		if kept != nil {
			kept.Member = m.Name
			c.res.Kept = append(c.res.Kept, *kept)
			if kept.Reason == Current {
				stays = Current
			}
		}
		if err == nil && (kept != nil || m.Special()) && w.out != nil {
			err = w.out.Keep(i)
		}
		switch {
		case w.failed != nil:
			return nil, outfile.Plain(w.failed)
		case err != nil:
			return nil, fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
		}
	}
	if !changes {
		c.res.Stays = stays
	}
	if w.out == nil {
		return nil, nil
	}
	return nil, w.out.Close()
}

// member converts one member, and adds it to w. If it is unchanged, member returns the reason.
func (c *conversion) member(w *archiveWriter, i int) (*Kept, error) {
	m, contents := &w.archive.Members[i], w.archive.Contents(i)
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := contents.ReadAt(magic, 0); err != nil && err != io.EOF {
		return nil, err
	} else if !bytes.Equal(magic[:n], []byte(elf.ELFMAG)) {
		return &Kept{Reason: NotELF, Why: elffile.ErrNotELF}, nil
	}
	if err := c.opt.Budget.Spend(elffile.CostHeaders, 1); err != nil {
		return nil, err
	}
	var dst Target
	defer func() {
		if f, ok := dst.(io.Closer); ok {
			f.Close()
		}
	}()
	n := len(c.res.Coverage)
	kept, err := c.elf(contents, m.Size, func() (Target, error) {
		err := c.opt.Budget.Spend(elffile.CostFile, 1)
		if err == nil {
			dst, err = c.scratch()
		}
		return dst, err
	})
	for _, cov := range c.res.Coverage[n:] {
		cov.File = "(" + m.Name + ")"
	}
	if kept != nil || err != nil || dst == nil {
		return kept, err
	}
	return nil, w.add(c, i, dst)
}

// An archiveWriter writes an archive from the first member on that changes.
type archiveWriter struct {
	archive *archive.Archive
	out     *archive.Writer // or nil
	failed  error           // of making the output
}

// add writes a member that is new. Before the first one, it makes the output with the members before that.
func (w *archiveWriter) add(c *conversion, i int, t Target) error {
	size, err := sizeOf(t)
	if err != nil {
		return err
	}
	if w.out == nil {
		if w.failed = w.start(c, i); w.failed != nil {
			return w.failed
		}
	}
	return w.out.Add(i, t, size)
}

// start makes the output with the first n members.
func (w *archiveWriter) start(c *conversion, n int) error {
	dst, err := c.open(c.create)
	if err != nil {
		return err
	}
	if w.out, err = w.archive.NewWriter(c.ctx, dst); err != nil {
		return err
	}
	for i := range n {
		if err := w.out.Keep(i); err != nil {
			return err
		}
	}
	return nil
}
