package repack

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/pack"
)

// Reasons why a file of a package is unchanged, beside those of package convert.
const (
	Present   convert.Reason = "sframe"        // it has an .sframe
	Module    convert.Reason = "kernel-module" // the kernel's loader depends on its layout, and it may be signed
	Object    convert.Reason = "object"        // a relocatable object
	Library   convert.Reason = "library"       // a static library
	Conffile  convert.Reason = "conffile"      // package managers compare it with the installed one
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

// A candidate is a regular file of a package.
type candidate struct {
	name     string
	contents *io.SectionReader
	stays    convert.Reason // why an ELF file is unchanged, or ""
	why      error          // the same in words for this file, or nil
}

// file converts a file, which begins with head, and returns its new contents, or nil if it does not change.
func (p *packer) file(c candidate, head []byte) (*io.SectionReader, error) {
	isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG))
	isDeb, _ := pack.IsDeb(bytes.NewReader(head)) // memory gives no errors
	isLibrary := bytes.HasPrefix(head, []byte(archive.Magic)) && !isDeb
	if !isELF && !isLibrary {
		p.res.Others++
		return nil, nil
	}
	if err := p.budget.Spend(elffile.CostHeaders, 1); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if isLibrary && !p.opt.Objects {
		c.stays = Library
	}
	if c.stays == "" {
		c.stays = p.kind(c)
	}
	if c.stays != "" {
		p.keep(c, c.stays, cmp.Or(c.why, errors.New(texts[c.stays])))
		return nil, nil
	}
	return p.converted(c)
}

// keep records that a file is unchanged.
func (p *packer) keep(c candidate, reason convert.Reason, why error) {
	p.record(c, &convert.Result{Kept: []convert.Kept{{Reason: reason, Why: why}}, Stays: reason})
}

// record adds the result of a file.
func (p *packer) record(c candidate, res *convert.Result) {
	size := c.contents.Size()
	p.res.Files = append(p.res.Files, File{Name: c.name, Result: res, Before: size, After: size})
}

// converted is file for one that may change.
func (p *packer) converted(c candidate) (*io.SectionReader, error) {
	if err := cmp.Or(p.budget.Spend(elffile.CostFile, 1), p.current.Truncate(0)); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	opt := p.opt.Options
	opt.Budget = p.budget
	target := func() (*os.File, error) { return p.current, nil }
	res, err := convert.Into(p.ctx, c.contents, c.contents.Size(), target, opt)
	if res != nil {
		for _, cov := range res.Coverage {
			cov.File = c.name + cov.File // of a member of a library that has its name
		}
	}
	switch {
	case p.ctx.Err() != nil:
		return nil, p.ctx.Err()
	case errors.Is(err, elfwrite.ErrExists):
		p.keep(c, Present, errors.New("it has "+texts[Present]))
		return nil, nil
	case err != nil && !errors.Is(err, convert.ErrCoverage) && !errors.Is(err, elffile.ErrBudget):
		p.keep(c, Defective, err)
		return nil, nil
	}
	p.record(c, res)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.name, err)
	case res.Stays != "":
		return nil, nil
	case p.opt.DryRun:
		return c.contents, nil
	}
	now, err := p.store(c)
	if now != nil {
		p.res.Files[len(p.res.Files)-1].After = now.Size()
	}
	return now, err
}

// store stores the new contents of a file, unless they equal the old ones.
func (p *packer) store(c candidate) (*io.SectionReader, error) {
	info, err := p.current.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size == c.contents.Size() {
		same, err := outfile.Equal(io.NewSectionReader(p.current, 0, size), io.NewSectionReader(c.contents, 0, size))
		if same || err != nil {
			return nil, err
		}
	}
	begin := p.end
	p.end += size
	return io.NewSectionReader(p.contents, begin, size), filecopy.Range(p.ctx, p.contents, begin, p.current, 0, size)
}

// kind returns why files of its kind are unchanged, or "".
func (p *packer) kind(c candidate) convert.Reason {
	f, err := elffile.NewIn(p.budget, c.contents, c.contents.Size())
	if err != nil { // converting it says why
		return ""
	}
	switch {
	case !f.IsObject():
		return ""
	case strings.HasSuffix(c.name, ".ko"), f.Section(".modinfo") != nil, f.Section(".gnu.linkonce.this_module") != nil:
		return Module
	case !p.opt.Objects:
		return Object
	}
	return ""
}
