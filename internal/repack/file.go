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
	"runtime/debug"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/outfile"
)

// Reasons why a file of a package stays as it is, beside those of package convert.
const (
	Present   convert.Reason = "sframe"        // it has an .sframe, and is not to get another one
	Module    convert.Reason = "kernel-module" // whose layout the kernel's loader counts on, and which may be signed
	Object    convert.Reason = "object"        // a relocatable object
	Library   convert.Reason = "library"       // a static library
	Conffile  convert.Reason = "conffile"      // a configuration file, which package managers compare with the one that is installed
	Signed    convert.Reason = "signed"        // its contents are signed
	Sparse    convert.Reason = "sparse"        // it is stored without its holes
	Large     convert.Reason = "large"         // it is larger than what is held in memory
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
	Large:     "too large",
	Defective: "cannot be converted",
}

// Text says what a reason is, in a few words.
func Text(r convert.Reason) string { return cmp.Or(texts[r], r.Text()) }

// How large a file may be, in bytes, that is converted in memory: so much in any package, more in one that is large itself, and no
// more than maxFile.
const (
	anyFile    = 512 << 20
	perPackage = 256 // bytes for each of the package
	maxFile    = 2 << 30
)

// largest returns how large a file of the package may be that is converted.
func (p *packer) largest() int64 {
	return min(max(anyFile, perPackage*min(p.size, maxFile)), maxFile)
}

// headSize is how many bytes of each file are looked at.
const headSize = elffile.HeaderSize

// A packer is the work on a package.
type packer struct {
	ctx     context.Context
	src     io.ReaderAt
	size    int64
	opt     Options
	res     Result
	probing bool // only whether anything changes is to be found out
	scratch []*os.File
}

// errChanges ends the search for a file that changes.
var errChanges = errors.New("a file changes")

// changes reports whether a file changes. Most of the time goes into compressing, which is of no use if none does.
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

// close gives up what is kept for a while.
func (p *packer) close() {
	for _, f := range p.scratch {
		f.Close()
	}
}

// temporary makes a file without a name.
func (p *packer) temporary() (*scratch, error) {
	f, err := outfile.Scratch()
	if err != nil {
		return nil, err
	}
	p.scratch = append(p.scratch, f)
	return &scratch{f}, nil
}

// A scratch is a file without a name. Errors say where it is, as nothing else of the package is there.
type scratch struct{ *os.File }

func (s *scratch) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	if err != nil {
		err = fmt.Errorf("cannot write to %s: %w", os.TempDir(), outfile.Plain(err))
	}
	return n, err
}

// A candidate is a regular file of a package.
type candidate struct {
	name   string
	size   int64
	stays  convert.Reason // if it is an ELF file, or ""
	reason string         // the same in words that are about this one, or ""
}

// edit reads a file's contents, and returns new ones, or nil and what it has read.
func (p *packer) edit(c candidate, r io.Reader) (changed, read []byte, err error) {
	head := make([]byte, min(c.size, headSize))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, nil, err
	}
	isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG))
	if !isELF && (!bytes.HasPrefix(head, []byte(arMagic)) || bytes.HasPrefix(head, []byte(arMagic+debVersion))) { // which is a package
		p.res.Others++
		return nil, head, nil
	}
	if !isELF && !p.opt.Objects {
		c.stays = Library
	}
	if most := p.largest(); c.stays == "" && c.size > most {
		c.stays, c.reason = Large, fmt.Sprintf("%d bytes; %d were expected at most", c.size, most)
	}
	if c.stays != "" {
		p.keep(c, cmp.Or(c.reason, texts[c.stays]))
		return nil, head, nil
	}
	b, err := p.readAll(head, r, c.size)
	if err != nil {
		return nil, nil, err
	}
	changed, err = p.convert(c, b)
	if changed != nil && p.probing {
		err = errChanges
	}
	return changed, b, err
}

// believed is how much memory is taken because a size is said, in bytes.
const believed = 64 << 20

// readAll returns so many bytes, of which it has the first. Many are put aside at first, as a size is easily said.
func (p *packer) readAll(head []byte, r io.Reader, size int64) ([]byte, error) {
	from := io.MultiReader(bytes.NewReader(head), r)
	if size > believed {
		debug.FreeOSMemory() // of the file before, which may be as large
		f, err := p.temporary()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if _, err := io.CopyN(f, from, size); err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
		from = io.NewSectionReader(f, 0, size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(from, b)
	return b, err
}

// keep notes that a file stays as it is.
func (p *packer) keep(c candidate, why string) {
	kept := convert.Kept{Reason: c.stays, Why: errors.New(why)}
	p.res.Files = append(p.res.Files, File{
		Name: c.name, Before: c.size, After: c.size, Result: &convert.Result{Kept: []convert.Kept{kept}, Stays: c.stays},
	})
}

// convert converts a file, and returns nil if it stays as it is.
func (p *packer) convert(c candidate, b []byte) ([]byte, error) {
	if c.stays = p.kind(c.name, b); c.stays != "" {
		p.keep(c, texts[c.stays])
		return nil, nil
	}
	var out bytes.Buffer
	if !p.opt.DryRun {
		out.Grow(len(b) + len(b)/8) // what there is not enough room for is copied
	}
	res, err := convert.Convert(p.ctx, bytes.NewReader(b), c.size, &out, p.opt.Options)
	if res != nil {
		for _, cov := range res.Coverage {
			cov.File = c.name + cov.File // of a member of a library that has its name
		}
	}
	file := File{Name: c.name, Result: res, Before: c.size, After: c.size}
	switch {
	case p.ctx.Err() != nil:
		return nil, p.ctx.Err()
	case errors.Is(err, convert.ErrCoverage):
		p.res.Files = append(p.res.Files, file)
		return nil, fmt.Errorf("%s: %w", c.name, err)
	case errors.Is(err, elfwrite.ErrExists):
		c.stays = Present
		p.keep(c, "it has an .sframe already; --update or --force replaces it")
		return nil, nil
	case err != nil:
		c.stays = Defective
		p.keep(c, err.Error())
		p.res.Files[len(p.res.Files)-1].Failed = err
		return nil, nil
	}
	p.res.Files = append(p.res.Files, file)
	if p.opt.DryRun || res.Stays != "" || bytes.Equal(out.Bytes(), b) {
		return nil, nil
	}
	p.res.Files[len(p.res.Files)-1].After = int64(out.Len())
	return out.Bytes(), nil
}

// kind returns why a file of its kind stays as it is, or "".
func (p *packer) kind(name string, b []byte) convert.Reason {
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil { // which is said when it is converted
		return ""
	}
	if p.opt.Starting != nil {
		var cfi uint64
		for _, section := range []string{".eh_frame", ".debug_frame"} {
			if s := f.Section(section); s != nil {
				cfi += min(s.Size, f.Size)
			}
		}
		p.opt.Starting(convert.Work{Size: f.Size, CFI: cfi})
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
