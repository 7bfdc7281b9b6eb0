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

// archive converts an archive member by member. Members without CFI and members that are not ELF files are unchanged.
// Any other error in a member fails the whole archive. The output is created at the first member that changes. If the
// file is not a supported archive, archive returns the reason.
func (c *conversion) archive() (*Kept, error) {
	a, err := archive.Open(c.src, c.job.Size)
	if err != nil {
		return c.keep(nil, err)
	}
	c.reportStart(Work{Size: uint64(c.job.Size), Archive: true})
	if err := c.budget.Spend(archive.CostMember, uint64(len(a.Members))); err != nil {
		return nil, fmt.Errorf("archive of %d members: %w", len(a.Members), err)
	}
	scratch := &scratch{budget: c.budget}
	defer scratch.close()
	var out *archive.Writer // nil before the first changed member
	stays, changes := NoCFI, false
	for i := range a.Members {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		m := &a.Members[i]
		var changed *os.File
		if !m.Special() {
			var kept *Kept
			if kept, err = c.member(m, a.Contents(i), scratch); err != nil {
				return nil, fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
			}
			if kept == nil {
				changes = true
				changed = scratch.file // nil in a dry run
			} else {
				c.res.Kept = append(c.res.Kept, *kept)
				if kept.Reason == Current {
					stays = Current
				}
			}
		}
		if changed != nil && out == nil {
			if out, err = c.startArchive(a, i); err != nil {
				return nil, outfile.Plain(err)
			}
		}
		if out == nil {
			continue
		}
		if err := addMember(out, i, changed); err != nil {
			return nil, fmt.Errorf("member %s: %w", m.Name, outfile.Plain(err))
		}
	}
	if !changes {
		c.res.Stays = stays
	}
	if out == nil {
		return nil, nil
	}
	return nil, out.Close()
}

// A scratch is a temporary file reused for the members of an archive.
type scratch struct {
	file   *os.File // created on demand
	budget *elffile.Budget
}

// costFile is the budget cost of writing a file; half of it is system time.
const costFile = 250_000

// reset truncates the file, creating it if necessary, and returns it.
func (s *scratch) reset() (*os.File, error) {
	if err := s.budget.Spend(costFile, 1); err != nil {
		return nil, err
	}
	if s.file != nil {
		return s.file, s.file.Truncate(0)
	}
	var err error
	s.file, err = outfile.Scratch()
	return s.file, err
}

func (s *scratch) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// member converts one member to the scratch file. If it is unchanged, member returns the reason.
func (c *conversion) member(m *archive.Member, contents *io.SectionReader, scratch *scratch) (*Kept, error) {
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := contents.ReadAt(magic, 0); err != nil && err != io.EOF {
		return nil, err
	} else if string(magic[:n]) != elf.ELFMAG {
		return &Kept{Member: m.Name, Reason: NotELF, Why: elffile.ErrNotELF}, nil
	}
	if err := c.budget.Spend(archive.CostHeaders, 1); err != nil {
		return nil, err
	}
	var create func() (*os.File, error)
	if c.job.Create != nil {
		create = scratch.reset
	}
	kept, err := c.elf(contents, m.Size, m.Name, create)
	if kept != nil {
		kept.Member = m.Name
	}
	return kept, err
}

// startArchive creates the output with the first n members, which are unchanged.
func (c *conversion) startArchive(a *archive.Archive, n int) (*archive.Writer, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	dst, err := c.job.Create()
	if err != nil {
		return nil, err
	}
	w, err := a.NewWriter(c.ctx, dst)
	for i := 0; i < n && err == nil; i++ {
		err = w.Keep(i)
	}
	return w, err
}

// addMember adds member i to an archive: with new contents, or unchanged if changed is nil.
func addMember(w *archive.Writer, i int, changed *os.File) error {
	if changed == nil {
		return w.Keep(i)
	}
	info, err := changed.Stat()
	if err != nil {
		return err
	}
	return w.Add(i, changed, info.Size())
}
