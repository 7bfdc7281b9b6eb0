package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/compressed"
)

// From deb(5).
const (
	arMagic    = "!<arch>\n"
	debVersion = "debian-binary"
	signature  = "_gpg" // begins the names of debsigs' and dpkg-sig's signatures
)

const (
	maxArMembers = 1000
	// The costs of a byte of a list in the budget (elffile.Budget): sums are in memory three times, and each configuration file is in
	// a map.
	costSums      = 128
	costConffiles = 1000
)

// debSuffixes are the ends of names by which dpkg knows how a part is compressed.
var debSuffixes = map[string]compressed.Kind{
	"": compressed.None, ".gz": compressed.Gzip, ".xz": compressed.XZ, ".zst": compressed.Zstd, ".bz2": compressed.Bzip2, ".lzma": compressed.LZMA,
}

// debError returns an error with its place in the package.
func debError(off int64, format string, args ...any) error {
	return fmt.Errorf("deb package at offset %#x: %w", off, fmt.Errorf(format, args...))
}

// A debPart is one of the two archives of tar.
type debPart struct {
	*archive.Member
	index int
	kind  compressed.Kind
}

// findPart returns the part of the given name.
func findPart(a *archive.Archive, name string) (part *debPart, err error) {
	for i := range a.Members {
		m := &a.Members[i]
		suffix, ok := strings.CutPrefix(m.Name, name)
		if !ok {
			continue
		}
		if part != nil {
			return nil, debError(m.Off, "a second %s; remove one", name)
		}
		kind, ok := debSuffixes[suffix]
		if !ok {
			return nil, debError(m.Off, "%s has an unknown compression; .gz, .xz, .zst, .bz2 and .lzma are supported", m.Name)
		}
		part = &debPart{m, i, kind}
	}
	if part == nil {
		return nil, fmt.Errorf("an archive without %s is %w", name, ErrKind)
	}
	return part, nil
}

// deb converts a Debian package. It returns the parts of the result, or nil if nothing changes.
func (p *packer) deb() ([]part, error) {
	a, err := archive.Open(p.src, p.size)
	if err != nil {
		return nil, err
	}
	switch all := a.Members; {
	case len(all) > maxArMembers:
		return nil, debError(all[maxArMembers].Off, "more than %d members", maxArMembers)
	case len(all) == 0 || all[0].Name != debVersion:
		return nil, fmt.Errorf("an archive whose first member is not %s is %w", debVersion, ErrKind)
	}
	for i := range a.Members {
		if m := &a.Members[i]; strings.HasPrefix(m.Name, signature) {
			return nil, debError(m.Off, "%s: %w", m.Name, ErrSigned)
		}
	}
	version, err := io.ReadAll(io.LimitReader(a.Contents(0), 16))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(version, []byte("2.")) {
		return nil, debError(a.Members[0].Off, "format %q; only 2.0 is supported", version)
	}
	d := &debPackage{packer: p, changed: make(map[string]bool)}
	if d.control, err = findPart(a, "control.tar"); err != nil {
		return nil, err
	}
	if d.data, err = findPart(a, "data.tar"); err != nil {
		return nil, err
	}
	if d.control.index != 1 || d.data.index < 1 {
		return nil, debError(d.control.Off, "%s is member %d, and %s member %d; the former must be the second, and before the latter",
			d.control.Name, d.control.index+1, d.data.Name, d.data.index+1)
	}
	if err := d.readControl(); err != nil {
		return nil, err
	}
	if p.opt.DryRun {
		return []part{}, d.convert(io.Discard)
	}
	if changes, err := p.changes(d.convert); !changes {
		return nil, err
	}
	newData, err := d.compress(d.data, d.convert)
	if err != nil {
		return nil, err
	}
	newControl, err := d.newControl()
	if err != nil {
		return nil, err
	}
	parts := []part{literal([]byte(arMagic))}
	for i := range a.Members {
		replaced := map[int]*part{d.data.index: newData, d.control.index: newControl}[i]
		if replaced == nil {
			begin, end := a.Range(i)
			parts = append(parts, part{from: p.src, off: begin, size: end - begin})
			continue
		}
		head, err := a.Header(i, replaced.size)
		if err != nil {
			return nil, err
		}
		parts = append(parts, literal(head), *replaced, literal([]byte("\n")[:replaced.size&1]))
	}
	return parts, nil
}

// A debPackage is the work on a Debian package.
type debPackage struct {
	*packer
	data, control *debPart
	conffiles     map[string]bool
	lists         []*sumList
	changed       map[string]bool // files, by their paths
}

// open returns a part, decompressed.
func (d *debPackage) open(m *debPart) (*compressed.Reader, error) {
	r, err := d.unpack(m.Off, m.Size, m.kind)
	if err != nil {
		return nil, debError(m.Off, "%s: %w", m.Name, err)
	}
	return r, nil
}

// aboutFile reports whether an error is not about the package.
func aboutFile(err error) bool {
	return errors.Is(err, errChanges) || errors.Is(err, convert.ErrCoverage) || errors.Is(err, context.Canceled)
}

// within adds the member to an error.
func within(m *debPart, err error) error {
	if err == nil || aboutFile(err) {
		return err
	}
	return debError(m.Off, "%s: %w", m.Name, err)
}

// readControl reads the lists of sums and of configuration files.
func (d *debPackage) readControl() error {
	r, err := d.open(d.control)
	if err != nil {
		return err
	}
	defer r.Close()
	d.conffiles = make(map[string]bool)
	err = d.copyTar(io.Discard, r, func(e *tarEntry, r io.Reader) (*change, error) {
		sum := sumFiles[e.name]
		if e.name != "conffiles" && sum == nil {
			return &change{}, nil
		}
		cost := int64(costSums)
		if sum == nil {
			cost = costConffiles
		}
		if err := d.budget.Spend(cost, uint64(e.Size)); err != nil {
			return nil, fmt.Errorf("%s of %d bytes: %w", e.name, e.Size, err)
		}
		b, err := io.ReadAll(io.LimitReader(r, e.Size))
		if err != nil {
			return nil, err
		}
		if sum != nil {
			if slices.ContainsFunc(d.lists, func(l *sumList) bool { return l.name == e.name }) {
				return nil, fmt.Errorf("a second %s; remove one", e.name)
			}
			d.lists = append(d.lists, &sumList{name: e.name, sum: sum, lines: b, files: make(map[string]fileSums)})
			return &change{}, nil
		}
		for line := range strings.Lines(string(b)) {
			if at := strings.IndexByte(line, '/'); at >= 0 { // a flag may be before the path
				d.conffiles[clean(strings.TrimRight(line[at:], " \t\r\n"))] = true
			}
		}
		return &change{}, nil
	}, nil)
	return within(d.control, err)
}

// compress writes a part again, in its form.
func (d *debPackage) compress(m *debPart, write func(io.Writer) error) (*part, error) {
	r, err := d.open(m)
	if err != nil {
		return nil, err
	}
	r.Close()
	return d.store(r.Form, write)
}

// unpack returns what decompresses a part of the package, which has to be of the given kind.
func (p *packer) unpack(off, size int64, kind compressed.Kind) (*compressed.Reader, error) {
	r, err := compressed.Open(p.ctx, p.budget, io.NewSectionReader(p.src, off, size))
	if err == nil && r.Form.Kind != kind {
		r.Close()
		err = fmt.Errorf("its compression is %s, and not %s as the package says", r.Form.Kind, kind)
	}
	if err != nil {
		return nil, err
	}
	p.writable = r.Form.Writable()
	return r, nil
}

// store compresses what write writes, in a file without a name.
func (p *packer) store(form *compressed.Form, write func(io.Writer) error) (*part, error) {
	f, err := p.temporary()
	if err != nil {
		return nil, err
	}
	form.Size = p.size
	if err := form.Store(p.ctx, f, p.opt.workers(), write); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &part{from: f, size: info.Size()}, nil
}

// convert writes data.tar with the files converted.
func (d *debPackage) convert(w io.Writer) error {
	r, err := d.open(d.data)
	if err != nil {
		return err
	}
	defer r.Close()
	err = d.copyTar(w, r, func(e *tarEntry, r io.Reader) (*change, error) {
		c := candidate{name: e.name, size: e.Size}
		switch {
		case d.conffiles[e.name]:
			c.stays = Conffile
		case e.sparse():
			c.stays = Sparse
		case e.signed() != "":
			c.stays, c.reason = Signed, "its contents are signed, by "+e.signed()
		}
		changed, err := d.edit(c, r)
		if err != nil {
			return nil, err
		}
		delete(d.changed, e.name)
		if changed.now != nil {
			d.changed[e.name] = true
		}
		for _, l := range d.lists {
			delete(l.files, e.name)
			if changed.now == nil {
				continue
			}
			var sums fileSums
			if sums.old, err = sumOf(l.sum, changed.old); err == nil {
				sums.now, err = sumOf(l.sum, changed.now)
			}
			if err != nil {
				return nil, err
			}
			l.files[e.name] = sums
		}
		return changed, nil
	}, d.other)
	return within(d.data, err)
}

// other records an entry that is another name of a file, or replaces one: of equal names the last counts.
func (d *debPackage) other(e *tarEntry) error {
	linked := e.Typeflag == tar.TypeLink && d.changed[e.link]
	if linked && d.conffiles[e.name] {
		return fmt.Errorf("the configuration file %s is another name of %s, which changes", e.name, e.link)
	}
	delete(d.changed, e.name)
	if linked {
		d.changed[e.name] = true
	}
	for _, l := range d.lists {
		file := l.files[e.link]
		delete(l.files, e.name)
		if linked {
			l.files[e.name] = file
		}
	}
	return nil
}
