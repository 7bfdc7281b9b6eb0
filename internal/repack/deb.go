package repack

import (
	"archive/tar"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/pack"
)

// signature begins the names of debsigs' and dpkg-sig's signatures.
const signature = "_gpg"

// The costs of a byte of a list in the budget (elffile.Budget): sums are in memory three times, and each configuration
// file is in a map.
const (
	costSums      = 128
	costConffiles = 1000
)

// within adds a member of the package to an error, if the error is about the package.
func within(m *archive.Member, err error) error {
	if errors.Is(err, convert.ErrCoverage) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("deb package at offset %#x: %s: %w", m.Off, m.Name, err)
}

// A debPackage is the work on a Debian package.
type debPackage struct {
	*packer
	conffiles map[string]bool
	lists     []*sumList
	changed   map[string][]fileSums // by the paths of files that changed, for each list
}

// deb converts a Debian package. It returns what changes in it.
func (p *packer) deb() (*changes, error) {
	parts, err := pack.OpenDeb(p.src, p.src.Size())
	if err != nil {
		return nil, err
	}
	for i := range parts.Members {
		if m := &parts.Members[i]; strings.HasPrefix(m.Name, signature) {
			return nil, within(m, ErrSigned)
		}
	}
	if parts.Control == 0 {
		return nil, errors.New("the package has no member control.tar")
	}
	d := &debPackage{packer: p, conffiles: make(map[string]bool), changed: make(map[string][]fileSums)}
	out := &changes{of: p.src}
	control, data := &parts.Members[parts.Control], &parts.Members[parts.Data]
	oldControl, err := p.unpack(control.Off, control.Size)
	if err == nil {
		err = p.entries(oldControl.SectionReader, d.control)
	}
	if err != nil {
		return nil, within(control, err)
	}
	oldData, err := p.unpack(data.Off, data.Size)
	if err != nil {
		return nil, within(data, err)
	}
	newData := &changes{of: oldData.SectionReader}
	if err := p.entries(newData.of, func(e *tarEntry) error { return d.data(e, newData) }); err != nil {
		return nil, within(data, err)
	}
	if !newData.changed() {
		return out, nil
	}
	if err := oldData.form.Writable(); err != nil || p.opt.DryRun {
		return out, err
	}
	newControl := &changes{of: oldControl.SectionReader}
	if err := p.entries(newControl.of, func(e *tarEntry) error { return d.renew(e, newControl) }); err != nil {
		return nil, within(control, err)
	}
	if err := d.member(out, parts, parts.Control, oldControl, newControl); err != nil {
		return nil, err
	}
	return out, d.member(out, parts, parts.Data, oldData, newData)
}

// member replaces a member of the package if its contents change.
func (d *debPackage) member(out *changes, parts *pack.Debian, i int, was *unpacked, now *changes) error {
	if !now.changed() {
		return nil
	}
	r, _ := now.reader(d.ctx)
	packed, err := d.packed(was, r)
	if err != nil {
		return err
	}
	head, err := parts.Header(i, packed.Size())
	if err != nil {
		return err
	}
	begin, end := parts.Range(i)
	out.replace(begin, end-begin, literal(head), packed, literal([]byte("\n")[:packed.Size()&1]))
	return nil
}

// control reads the lists of sums and of configuration files.
func (d *debPackage) control(e *tarEntry) error {
	sum, cost := sumFiles[e.name], int64(costSums)
	if e.name == "conffiles" {
		cost = costConffiles
	} else if sum == nil {
		return nil
	}
	if err := d.budget.Spend(cost, uint64(e.Size)); err != nil {
		return fmt.Errorf("%s of %d bytes: %w", e.name, e.Size, err)
	}
	b := make([]byte, e.Size)
	if _, err := e.contents.ReadAt(b, 0); err != nil && err != io.EOF {
		return err
	}
	if sum != nil {
		d.lists = append(d.lists, &sumList{e.name, sum, string(b), e.off})
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.IndexByte(line, '/'); at >= 0 { // a flag may be before the path
			d.conffiles[pack.Clean(strings.TrimRight(line[at:], " \t\r\n"))] = true
		}
	}
	return nil
}

// data converts a file. Other entries may be another name of a file, or replace one: of equal names the last counts.
func (d *debPackage) data(e *tarEntry, out *changes) error {
	if !e.regular() {
		sums, linked := d.changed[e.link]
		if linked = linked && e.Typeflag == tar.TypeLink; !linked {
			delete(d.changed, e.name)
			return nil
		}
		if d.conffiles[e.name] {
			return fmt.Errorf("the configuration file %s is another name of %s, which changes", e.name, e.link)
		}
		d.changed[e.name] = sums
		return nil
	}
	c := candidate{name: e.name, contents: e.contents}
	switch {
	case d.conffiles[e.name]:
		c.stays = Conffile
	case pack.Sparse(e.Header):
		c.stays = Sparse
	case e.signed() != "":
		c.stays, c.why = Signed, errors.New("its contents are signed, by "+e.signed())
	}
	delete(d.changed, e.name)
	now, err := d.file(c, e.head)
	if now == nil || err != nil {
		return err
	}
	sums := make([]fileSums, len(d.lists))
	for i, l := range d.lists {
		if sums[i], err = sumsOf(l.sum, e.contents, now); err != nil {
			return err
		}
	}
	d.changed[e.name] = sums
	return e.replace(out, now)
}

// sumFiles are the lists of sums that a Debian package can have. dpkg reads only md5sums.
var sumFiles = map[string]func() hash.Hash{
	"md5sums": md5.New, "sha1sums": sha1.New, "sha256sums": sha256.New, "sha512sums": sha512.New,
}

// A sumList is one of them.
type sumList struct {
	name  string
	sum   func() hash.Hash
	lines string
	off   int64 // in the archive, in bytes
}

// fileSums are those of a file, as digits.
type fileSums struct{ old, now string }

// sumsOf returns the sums of a file as md5sum and others print them.
func sumsOf(sum func() hash.Hash, old, now *io.SectionReader) (fileSums, error) {
	before, after := sum(), sum()
	_, err := io.Copy(before, all(old))
	if err == nil {
		_, err = io.Copy(after, all(now))
	}
	return fileSums{hexSum(before), hexSum(after)}, err
}

// hexSum returns a sum in hexadecimal digits.
func hexSum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// sumLine is a line of a list as dpkg reads it: the sum, and after two bytes the name.
var sumLine = regexp.MustCompile(`^([0-9A-Fa-f]+) [ *](.+?)\r?\n?$`)

// renew replaces the sums of the files that changed, if the entry is a list. The size is the same.
func (d *debPackage) renew(e *tarEntry, out *changes) error {
	i := slices.IndexFunc(d.lists, func(l *sumList) bool { return l.off == e.off })
	if i < 0 {
		return nil
	}
	l := d.lists[i]
	off, number := l.off, 0
	for line := range strings.Lines(l.lines) {
		begin := off
		off += int64(len(line))
		number++
		if text := strings.TrimSpace(line); text == "" || text[0] == '#' {
			continue
		}
		m := sumLine.FindStringSubmatch(line)
		if m == nil || len(m[1]) != 2*l.sum().Size() {
			return fmt.Errorf("%s, line %d: %.100q is not a sum, two spaces and a path; correct or remove it",
				l.name, number, line)
		}
		name := pack.Clean(m[2])
		sums, changed := d.changed[name]
		if !changed {
			continue
		}
		if have := m[1]; !strings.EqualFold(have, sums[i].old) {
			return fmt.Errorf("%s has %s for %s, but the sum of the file is %s", l.name, have, name, sums[i].old)
		}
		out.replace(begin, int64(len(m[1])), literal([]byte(sums[i].now)))
	}
	return nil
}
