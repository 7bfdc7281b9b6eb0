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
	"regexp"
	"strings"

	"cfi2sframe/internal/outfile"
)

// sumFiles are the lists of sums that a Debian package can have. dpkg reads only md5sums.
var sumFiles = map[string]func() hash.Hash{"md5sums": md5.New, "sha1sums": sha1.New, "sha256sums": sha256.New, "sha512sums": sha512.New}

// A sumList is one of them.
type sumList struct {
	name  string
	sum   func() hash.Hash
	lines []byte
	files map[string]fileSums // that changed, by their paths
}

// fileSums are those of a file, as digits.
type fileSums struct{ old, now string }

// sumOf returns the sum of a file as md5sum and others print it.
func sumOf(sum func() hash.Hash, contents *outfile.Spool) (string, error) {
	h := sum()
	_, err := io.Copy(h, contents.Reader())
	return hexSum(h), err
}

// sumLine and bsdLine are the two forms of a line that md5sum -c accepts: its own, and the one of BSD and OpenSSL. A backslash before
// them says that the name is escaped.
var (
	sumLine = regexp.MustCompile(`^[ \t]*(\\?)([0-9A-Fa-f]+)[ \t](.+)$`)
	bsdLine = regexp.MustCompile(`^[ \t]*(\\?)(?:MD5|SHA1|SHA256|SHA512) ?\((.+)\)[ \t]*=[ \t]*([0-9A-Fa-f]+)$`)
)

// escapes are what md5sum writes for characters of names that lines cannot have.
var escapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")

// badEscape is a backslash that does not begin an escape, after the pairs before it.
var badEscape = regexp.MustCompile(`^(?:[^\\]|\\[\\nr])*\\(?:[^\\nr]|$)`)

// A sumReader reads the lines of a list. The first line that is not in the form of BSD tells whether names have one separator before
// them, or two.
type sumReader struct{ known, single bool }

// parse returns the place of the sum in a line, and the name. The line has no end.
func (r *sumReader) parse(line string) (sum field, name string, ok bool) {
	if m := bsdLine.FindStringSubmatchIndex(line); m != nil {
		sum, name = field{m[6], m[7]}, line[m[4]:m[5]]
		return sum, name, unescape(&name, m[2] < m[3])
	}
	m := sumLine.FindStringSubmatchIndex(line)
	if m == nil {
		return sum, "", false
	}
	sum, name = field{m[4], m[5]}, line[m[6]:]
	two := len(name) > 1 && (name[0] == ' ' || name[0] == '*')
	if !r.known {
		r.known, r.single = true, !two
	}
	if !r.single {
		if !two {
			return sum, "", false
		}
		name = name[1:]
	}
	return sum, name, unescape(&name, m[2] < m[3])
}

// unescape replaces the escapes of a name that has some, and reports whether all of them are known.
func unescape(name *string, escaped bool) bool {
	if !escaped {
		return true
	}
	bad := badEscape.MatchString(*name)
	*name = escapes.Replace(*name)
	return !bad
}

// renewed returns the lines with new sums of the files that changed, or nil if the list has none of them. The size is the same.
func (l *sumList) renewed() ([]byte, error) {
	out := bytes.Clone(l.lines)
	found := false
	at, number := 0, 0
	var r sumReader
	for line := range strings.Lines(string(l.lines)) {
		begin := at
		at += len(line)
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		sum, name, ok := r.parse(line)
		if !ok || sum.end-sum.at != 2*l.sum().Size() {
			return nil, fmt.Errorf("%s, line %d: %.100q is not a line that %s -c accepts; correct or remove it",
				l.name, number, line, strings.TrimSuffix(l.name, "s"))
		}
		name = clean(name)
		file, changed := l.files[name]
		if !changed {
			continue
		}
		if have := line[sum.at:sum.end]; !strings.EqualFold(have, file.old) {
			return nil, fmt.Errorf("%s has %s for %s; %s was expected, as the file is", l.name, have, name, file.old)
		}
		copy(out[begin+sum.at:], file.now)
		found = true
	}
	if !found {
		return nil, nil
	}
	return out, nil
}

// newControl returns control.tar with new sums of the files that changed, or nil if it has none of them.
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
		r, err := d.open(d.control)
		if err != nil {
			return err
		}
		defer r.Close()
		err = d.copyTar(w, r, func(e *tarEntry, r io.Reader) (*change, error) {
			b, ok := renewed[e.name]
			if !ok {
				return &change{}, nil
			}
			if _, err := io.CopyN(io.Discard, r, e.Size); err != nil {
				return nil, err
			}
			now, err := outfile.NewSpool(bytes.NewReader(b), int64(len(b)))
			return &change{old: now}, err
		}, nil)
		return within(d.control, err)
	})
}
