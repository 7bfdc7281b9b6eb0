package repack

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/outfile"
)

// Reasons why a file of a package is unchanged, beside those of package convert.
const (
	Present   convert.Reason = "sframe"        // it has an .sframe
	Module    convert.Reason = "kernel-module" // the kernel's loader depends on its layout, and it may be signed
	Object    convert.Reason = "object"        // a relocatable object
	Library   convert.Reason = "library"       // a static library
	Conffile  convert.Reason = "conffile"      // a configuration file: package managers compare it with the installed one
	Signed    convert.Reason = "signed"        // its contents are signed
	Sparse    convert.Reason = "sparse"        // it is stored without its holes
	Defective convert.Reason = "failed"        // it cannot be converted
)

var texts = map[convert.Reason]string{
	Present:   "an .sframe already; --update or --force replaces it",
	Module:    "kernel module",
	Object:    "object; --objects converts it",
	Library:   "static library; --objects converts it",
	Conffile:  "configuration file",
	Signed:    "signed file",
	Sparse:    "sparse file",
	Defective: "cannot be converted",
}

// Text returns a short description of a reason.
func Text(r convert.Reason) string { return cmp.Or(texts[r], r.Text()) }

// headSize is how many bytes of each file are read first.
const headSize = elffile.HeaderSize

// A packer is the work on a package.
type packer struct {
	ctx     context.Context
	src     io.ReaderAt
	size    int64
	opt     Options
	budget  *elffile.Budget
	res     Result
	probing bool // the first change is an error
	// writable is an error if the part that is read cannot be written in the same form.
	writable error
	scratch  []*os.File
}

// errChanges ends the search for a file that changes.
var errChanges = errors.New("a file changes")

// changes reports whether a file changes. If none does, nothing has to be compressed, which takes most of the time.
func (p *packer) changes(convert func(io.Writer) error) (bool, error) {
	p.probing = true
	err := convert(io.Discard)
	p.probing = false
	if errors.Is(err, errChanges) {
		p.res = Result{}
		return true, nil
	}
	return false, err
}

// close closes all temporary files.
func (p *packer) close() {
	for _, f := range p.scratch {
		f.Close()
	}
}

// temporary makes a file without a name.
func (p *packer) temporary() (*os.File, error) {
	f, err := outfile.Scratch()
	if err == nil {
		p.scratch = append(p.scratch, f)
	}
	return f, err
}

// A candidate is a regular file of a package.
type candidate struct {
	name   string
	size   int64
	stays  convert.Reason // why an ELF file is unchanged, or ""
	reason string         // the same in words for this file, or ""
}

// A change has the contents of a file: the new ones, if they change, and those of the old ones that were read, all if they change.
type change struct {
	old, now *outfile.Spool
	file     *os.File // that has the new ones
}

// close frees the contents.
func (e *change) close() {
	e.old.Close()
	if e.file != nil {
		e.file.Close()
	}
}

// edit reads a file, and converts it.
func (p *packer) edit(c candidate, r io.Reader) (*change, error) {
	begin, err := outfile.NewSpool(r, min(c.size, headSize))
	if err != nil {
		return nil, err
	}
	head := make([]byte, begin.Size())
	if _, err := io.ReadFull(begin.Reader(), head); err != nil {
		return nil, err
	}
	isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG))
	if !isELF && (!bytes.HasPrefix(head, []byte(arMagic)) || bytes.HasPrefix(head, []byte(arMagic+debVersion))) { // the latter is a package
		p.res.Others++
		return &change{old: begin}, nil
	}
	if err := p.budget.Spend(elffile.CostHeaders, 1); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if !isELF && !p.opt.Objects {
		c.stays = Library
	}
	if c.stays != "" {
		p.keep(c, cmp.Or(c.reason, texts[c.stays]))
		return &change{old: begin}, nil
	}
	all, err := outfile.NewSpool(io.MultiReader(begin.Reader(), r), c.size)
	if err != nil {
		return nil, err
	}
	e := &change{old: all}
	if err := p.convert(c, e); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// keep records that a file is unchanged.
func (p *packer) keep(c candidate, why string) {
	kept := convert.Kept{Reason: c.stays, Why: errors.New(why)}
	p.res.Files = append(p.res.Files, File{
		Name: c.name, Before: c.size, After: c.size, Result: &convert.Result{Kept: []convert.Kept{kept}, Stays: c.stays},
	})
}

// convert converts a file.
func (p *packer) convert(c candidate, e *change) error {
	if c.stays = p.kind(c.name, e.old); c.stays != "" {
		p.keep(c, texts[c.stays])
		return nil
	}
	err := p.budget.Spend(elffile.CostFile, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if e.file, err = outfile.Scratch(); err != nil {
		return err
	}
	opt := p.opt.Options
	opt.Budget = p.budget
	res, err := convert.Into(p.ctx, e.old, c.size, func() (convert.Target, error) { return e.file, nil }, opt)
	if res != nil {
		for _, cov := range res.Coverage {
			cov.File = c.name + cov.File // of a member of a library that has its name
		}
	}
	file := File{Name: c.name, Result: res, Before: c.size, After: c.size}
	switch {
	case p.ctx.Err() != nil:
		return p.ctx.Err()
	case errors.Is(err, convert.ErrCoverage):
		p.res.Files = append(p.res.Files, file)
		return fmt.Errorf("%s: %w", c.name, err)
	case errors.Is(err, elffile.ErrBudget):
		return fmt.Errorf("%s: %w", c.name, err)
	case errors.Is(err, elfwrite.ErrExists):
		c.stays = Present
		p.keep(c, "it has an .sframe already; --update or --force replaces it")
		return nil
	case err != nil:
		c.stays = Defective
		p.keep(c, err.Error())
		p.res.Files[len(p.res.Files)-1].Failed = err
		return nil
	}
	p.res.Files = append(p.res.Files, file)
	if res.Stays != "" {
		return nil
	}
	if p.opt.DryRun {
		return p.writable
	}
	same, err := e.compare()
	if same || err != nil {
		return err
	}
	p.res.Files[len(p.res.Files)-1].After = e.now.Size()
	if p.probing {
		return cmp.Or(p.writable, errChanges)
	}
	return nil
}

// compare sets the new contents, unless they equal the old ones.
func (e *change) compare() (same bool, err error) {
	now, err := outfile.SpoolOf(e.file)
	if err != nil {
		return false, err
	}
	if now.Size() == e.old.Size() {
		same, err = outfile.Equal(now.Reader(), e.old.Reader())
	}
	if !same {
		e.now = now
	}
	return same, err
}

// kind returns why files of its kind are unchanged, or "".
func (p *packer) kind(name string, contents *outfile.Spool) convert.Reason {
	f, err := elffile.NewIn(p.budget, contents, contents.Size())
	if err != nil { // converting it says why
		return ""
	}
	switch {
	case !f.IsObject():
		return ""
	case f.Section(".modinfo") != nil || f.Section(".gnu.linkonce.this_module") != nil || strings.HasSuffix(path.Base(name), ".ko"):
		return Module
	case !p.opt.Objects:
		return Object
	}
	return ""
}
