package convert

import (
	"debug/elf"
	"fmt"
	"io"
	"os"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
)

// An archived converts an archive member by member. Members without CFI and members that are not ELF files are
// unchanged. Any other error in a member fails the whole archive.
type archived struct {
	*conversion
	*archive.Archive
	scratch *os.File        // temporary file reused for the members, created on demand
	out     *archive.Writer // nil before the first changed member
}

// archive converts an archive. If the file is not a supported archive, it returns the reason.
func (c *conversion) archive() (*Kept, error) {
	all, err := archive.Open(c.src, c.job.Size)
	if err != nil {
		return c.keep(nil, err)
	}
	c.reportStart(Work{Size: uint64(c.job.Size), Archive: true})
	if err := c.budget.Spend(archive.CostMember, uint64(len(all.Members))); err != nil {
		return nil, fmt.Errorf("archive of %d members: %w", len(all.Members), err)
	}
	a := &archived{conversion: c, Archive: all}
	defer func() { a.scratch.Close() }() // which may be nil
	stays := NoCFI
	for i := range a.Members {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		m := &a.Members[i]
		kept, err := a.convert(i)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
		}
		changed := kept == nil && !m.Special()
		if changed {
			stays = ""
		} else if kept != nil {
			c.res.Kept = append(c.res.Kept, *kept)
			if kept.Reason == Current && stays != "" {
				stays = Current
			}
		}
		if changed && c.job.Create != nil && a.out == nil {
			if err := a.start(i); err != nil {
				return nil, outfile.Plain(err)
			}
		}
		if err := a.write(i, changed); err != nil {
			return nil, fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
		}
	}
	c.res.Stays = stays
	if a.out == nil {
		return nil, nil
	}
	return nil, a.out.Close()
}

// costFile is the budget cost of writing a file; half of it is system time.
const costFile = 250_000

// create truncates the temporary file, creating it if necessary, and returns it.
func (a *archived) create() (*os.File, error) {
	err := a.budget.Spend(costFile, 1)
	switch {
	case err != nil:
	case a.scratch != nil:
		err = a.scratch.Truncate(0)
	default:
		a.scratch, err = outfile.Scratch()
	}
	return a.scratch, err
}

// convert converts member i to the temporary file. If it is unchanged, convert returns the reason. Special members have
// none.
func (a *archived) convert(i int) (*Kept, error) {
	m, contents := &a.Members[i], a.Contents(i)
	if m.Special() {
		return nil, nil
	}
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := contents.ReadAt(magic, 0); err != nil && err != io.EOF {
		return nil, err
	} else if string(magic[:n]) != elf.ELFMAG {
		return &Kept{Member: m.Name, Reason: NotELF, Why: elffile.ErrNotELF}, nil
	}
	if err := a.budget.Spend(archive.CostHeaders, 1); err != nil {
		return nil, err
	}
	var create func() (*os.File, error)
	if a.job.Create != nil {
		create = a.create
	}
	kept, err := a.elf(contents, m.Size, m.Name, create)
	if kept != nil {
		kept.Member = m.Name
	}
	return kept, err
}

// start creates the output with the first n members, which are unchanged.
func (a *archived) start(n int) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	dst, err := a.job.Create()
	if err != nil {
		return err
	}
	a.out, err = a.NewWriter(a.ctx, dst)
	for i := 0; i < n && err == nil; i++ {
		err = a.out.Keep(i)
	}
	return err
}

// write writes member i, which may have changed, to the output, if it has been created.
func (a *archived) write(i int, changed bool) error {
	switch {
	case a.out == nil:
		return nil
	case !changed:
		return a.out.Keep(i)
	}
	info, err := a.scratch.Stat()
	if err != nil {
		return err
	}
	return a.out.Add(i, a.scratch, info.Size())
}
