package repack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/compressed"
)

// From deb(5) and ar(5).
const (
	arMagic    = "!<arch>\n"
	arHeader   = 60
	arEnd      = "`\n"
	arSizeAt   = 48
	arSizeEnd  = 58
	debVersion = "debian-binary"
	control    = "control.tar"
	data       = "data.tar"
	signature  = "_gpg" // begins the names of debsigs' and dpkg-sig's signatures
)

// What is accepted at most.
const (
	maxArMembers = 1000
	// What a byte of a list costs of the package's budget (elffile.Budget): of sums, which are in memory three times, and of
	// configuration files, of which each is in a map.
	costSums      = 128
	costConffiles = 1000
)

// An arMember is a member of a package.
type arMember struct {
	name      string
	head      []byte // its header, as it is
	off, size int64  // of the contents, in bytes
	end       int64  // of what fills up the contents
}

// debSuffixes are the ends of names by which dpkg knows how a part is compressed.
var debSuffixes = map[string]compressed.Kind{
	"": compressed.None, ".gz": compressed.Gzip, ".xz": compressed.XZ, ".zst": compressed.Zstd, ".bz2": compressed.Bzip2, ".lzma": compressed.LZMA,
}

// A debError says where in the package what is wrong.
func debError(off int64, format string, args ...any) error {
	return fmt.Errorf("deb package at offset %#x: %w", off, fmt.Errorf(format, args...))
}

// members reads the headers of all members.
func (p *packer) members() ([]arMember, error) {
	var all []arMember
	for off := int64(len(arMagic)); off < p.size; {
		if len(all) == maxArMembers {
			return nil, debError(off, "more than %d members", maxArMembers)
		}
		m := arMember{head: make([]byte, arHeader), off: off + arHeader}
		if n, err := p.src.ReadAt(m.head, off); n < arHeader {
			if err == io.EOF {
				return nil, debError(off, "a member's header of %d bytes; %d were expected", n, arHeader)
			}
			return nil, err
		}
		digits := strings.TrimRight(string(m.head[arSizeAt:arSizeEnd]), " ")
		size, err := strconv.ParseUint(digits, 10, 62)
		if string(m.head[arSizeEnd:]) != arEnd || err != nil {
			return nil, debError(off, "a member's header with size %q and end %q; a number and %q were expected", digits, m.head[arSizeEnd:], arEnd)
		}
		m.size = int64(size)
		if m.size > p.size-m.off {
			return nil, debError(off, "a member of %d bytes; there are %d", m.size, p.size-m.off)
		}
		m.name = strings.TrimSuffix(strings.TrimRight(string(m.head[:16]), " "), "/")
		m.end = min(m.off+m.size+m.size&1, p.size)
		all = append(all, m)
		off = m.end
	}
	return all, nil
}

// A debPart is one of the two archives of tar.
type debPart struct {
	*arMember
	kind compressed.Kind
}

// findPart returns the part of the given name.
func findPart(all []arMember, name string) (part *debPart, at int, err error) {
	for i := range all {
		suffix, ok := strings.CutPrefix(all[i].name, name)
		if !ok {
			continue
		}
		if part != nil {
			return nil, 0, debError(all[i].off-arHeader, "a second %s; one was expected", name)
		}
		kind, ok := debSuffixes[suffix]
		if !ok {
			return nil, 0, debError(all[i].off-arHeader, "%s is compressed in a way that is not known; .gz, .xz, .zst, .bz2 or .lzma was expected", all[i].name)
		}
		part, at = &debPart{&all[i], kind}, i
	}
	if part == nil {
		return nil, 0, fmt.Errorf("an archive without %s is %w", name, ErrKind)
	}
	return part, at, nil
}

// deb converts a Debian package. It returns the parts of the result, or nil if it is what it was.
func (p *packer) deb() ([]part, error) {
	all, err := p.members()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 || all[0].name != debVersion {
		return nil, fmt.Errorf("an archive whose first member is not %s is %w", debVersion, ErrKind)
	}
	for i := range all {
		if strings.HasPrefix(all[i].name, signature) {
			return nil, debError(all[i].off-arHeader, "%s: %w", all[i].name, ErrSigned)
		}
	}
	version := make([]byte, min(all[0].size, 16))
	if _, err := p.src.ReadAt(version, all[0].off); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(version, []byte("2.")) {
		return nil, debError(all[0].off, "format %q; 2.0 was expected", version)
	}
	ctl, first, err := findPart(all, control)
	if err != nil {
		return nil, err
	}
	dat, second, err := findPart(all, data)
	if err != nil {
		return nil, err
	}
	if first != 1 || second < first {
		return nil, debError(ctl.off-arHeader, "%s is member %d, and %s member %d; the second, and one after it, were expected", ctl.name, first+1, dat.name, second+1)
	}
	d := &debPackage{packer: p, data: dat, control: ctl, changed: make(map[string]bool)}
	if err := d.readControl(); err != nil {
		return nil, err
	}
	if p.opt.DryRun {
		return []part{}, d.convert(io.Discard)
	}
	if changes, err := p.changes(d.convert); !changes {
		return nil, err
	}
	newData, err := d.compress(dat, d.convert)
	if err != nil {
		return nil, err
	}
	newControl, err := d.newControl()
	if err != nil {
		return nil, err
	}
	parts := []part{literal([]byte(arMagic))}
	for i := range all {
		m := &all[i]
		var replaced *part
		switch {
		case m == dat.arMember:
			replaced = newData
		case m == ctl.arMember:
			replaced = newControl
		}
		if replaced == nil {
			parts = append(parts, literal(m.head), part{from: p.src, off: m.off, size: m.end - m.off})
			continue
		}
		head, err := m.resized(replaced.size)
		if err != nil {
			return nil, err
		}
		parts = append(parts, literal(head), *replaced)
		if replaced.size&1 != 0 {
			parts = append(parts, literal([]byte("\n")))
		}
	}
	return parts, nil
}

// resized returns the header of the member with other contents.
func (m *arMember) resized(size int64) ([]byte, error) {
	head := bytes.Clone(m.head)
	digits := fmt.Sprintf("%-10d", size)
	if len(digits) > arSizeEnd-arSizeAt {
		return nil, debError(m.off-arHeader, "%s has %d bytes now; the header has room for ten digits", m.name, size)
	}
	copy(head[arSizeAt:], digits)
	return head, nil
}

// A debPackage is the work on a Debian package.
type debPackage struct {
	*packer
	data, control *debPart
	conffiles     map[string]bool
	lists         []*sumList
	changed       map[string]bool // files, by their paths
}

// open returns what is in a part, decompressed.
func (d *debPackage) open(m *debPart) (io.ReadCloser, *compressed.Form, error) {
	r, form, err := d.unpack(m.off, m.size, m.kind)
	if err != nil {
		return nil, nil, debError(m.off, "%s: %w", m.name, err)
	}
	return r, form, nil
}

// within says in which member an error is.
func within(m *debPart, err error) error {
	if err == nil || errors.Is(err, errChanges) || errors.Is(err, convert.ErrCoverage) || errors.Is(err, context.Canceled) {
		return err
	}
	return debError(m.off, "%s: %w", m.name, err)
}

// readControl reads what the package says of its files.
func (d *debPackage) readControl() error {
	r, _, err := d.open(d.control)
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
		if err := d.budget.Spend(cost, uint64(e.size)); err != nil {
			return nil, fmt.Errorf("%s of %d bytes: %w", e.name, e.size, err)
		}
		b, err := io.ReadAll(io.LimitReader(r, e.size))
		if err != nil {
			return nil, err
		}
		if sum != nil {
			if slices.ContainsFunc(d.lists, func(l *sumList) bool { return l.name == e.name }) {
				return nil, fmt.Errorf("a second %s; one was expected", e.name)
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

// compress writes a part anew, in the form that it has.
func (d *debPackage) compress(m *debPart, write func(io.Writer) error) (*part, error) {
	r, form, err := d.open(m)
	if err != nil {
		return nil, err
	}
	r.Close()
	return d.store(form, write)
}

// unpack returns what decompresses a part of the package, which has to be of the given kind.
func (p *packer) unpack(off, size int64, kind compressed.Kind) (io.ReadCloser, *compressed.Form, error) {
	r, form, err := compressed.Open(io.NewSectionReader(p.src, off, size))
	if err == nil && form.Kind != kind {
		r.Close()
		err = fmt.Errorf("its compression is %s, and not %s as the package says", form.Kind, kind)
	}
	if err != nil {
		return nil, nil, err
	}
	p.writable = form.Writable()
	return &unpacked{r, p.budget}, form, nil
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
	r, _, err := d.open(d.data)
	if err != nil {
		return err
	}
	defer r.Close()
	err = d.copyTar(w, r, func(e *tarEntry, r io.Reader) (*change, error) {
		c := candidate{name: e.name, size: e.size}
		switch {
		case d.conffiles[e.name]:
			c.stays = Conffile
		case e.sparse:
			c.stays = Sparse
		case e.signed != "":
			c.stays, c.reason = Signed, "its contents are signed, by "+e.signed
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

// other notes another name of a file, or what takes the place of one: of what comes twice the last counts.
func (d *debPackage) other(e *tarEntry) error {
	linked := e.kind == '1' && d.changed[e.link]
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
