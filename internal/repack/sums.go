package repack

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"io"
	"strings"
)

// sumFiles are the lists of sums that a Debian package can have. dpkg reads md5sums alone; what looks at the others has to find them
// right as well.
var sumFiles = map[string]func() hash.Hash{"md5sums": md5.New, "sha1sums": sha1.New, "sha256sums": sha256.New, "sha512sums": sha512.New}

// A sumList is one of them. A line has a sum, a space, another one or the asterisk of "md5sum -b", and a path.
type sumList struct {
	name  string
	sum   func() hash.Hash
	lines []byte
	files map[string]fileSums // of those that changed, by their paths
}

// fileSums are those of a file, as digits.
type fileSums struct{ old, now string }

// of returns the sum of a file as md5sum and others print it.
func (l *sumList) of(b []byte) string {
	h := l.sum()
	h.Write(b)
	return hexSum(h)
}

// renewed returns the lines with the sums of the files that changed, or nil if there is none of them. It has as many bytes as before.
func (l *sumList) renewed() ([]byte, error) {
	out := bytes.Clone(l.lines)
	found := false
	at := 0
	for line := range strings.Lines(string(l.lines)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		ok := strings.HasPrefix(name, " ") || strings.HasPrefix(name, "*")
		name = clean(name[min(1, len(name)):])
		file, changed := l.files[name]
		if ok && changed {
			if !strings.EqualFold(sum, file.old) {
				return nil, fmt.Errorf("%s has %s for %s; %s was expected, as the file is", l.name, sum, name, file.old)
			}
			copy(out[at:], file.now)
			found = true
		}
		at += len(line)
	}
	if !found {
		return nil, nil
	}
	return out, nil
}

// newControl returns control.tar with the sums of the files that changed, or nil if it has none of them.
func (d *debPackage) newControl() (*part, error) {
	renewed := make(map[string][]byte)
	for _, l := range d.lists {
		b, err := l.renewed()
		if err != nil {
			return nil, within(d.control, err)
		}
		if b != nil {
			renewed[l.name] = b
		}
	}
	if len(renewed) == 0 {
		return nil, nil
	}
	return d.compress(d.control, func(w io.Writer) error {
		r, _, err := d.open(d.control)
		if err != nil {
			return err
		}
		defer r.Close()
		err = copyTar(d.ctx, w, r, func(e *tarEntry, r io.Reader) (_, read []byte, err error) {
			b, ok := renewed[e.name]
			if ok {
				_, err = io.CopyN(io.Discard, r, e.size)
			}
			return nil, b, err
		}, nil)
		return within(d.control, err)
	})
}
