package repack

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"io"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/internal/pack"
)

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
