package archive

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestKind tells a thin archive from one that is malformed.
func TestKind(t *testing.T) {
	for contents, want := range map[string]bool{thinMagic: true, Magic + "x": false} {
		_, err := Open(strings.NewReader(contents), int64(len(contents)))
		if err == nil || errors.Is(err, ErrKind) != want {
			t.Errorf("%q: error %v is one of the kind: %t, want %t", contents, err, errors.Is(err, ErrKind), want)
		}
	}
}

// TestManyMembers has as many members as are accepted, and one more.
func TestManyMembers(t *testing.T) {
	one := member("a/", "")
	for n, want := range map[int]string{maxMembers: "<nil>", maxMembers + 1: fmt.Sprintf("archive at offset %#x: more than 524288 members", 8+60*maxMembers)} {
		all := Magic + strings.Repeat(one, n)
		a, err := Open(strings.NewReader(all), int64(len(all)))
		if fmt.Sprint(err) != want || err == nil && len(a.Members) != n {
			t.Errorf("%d members: error %v, want %s", n, err, want)
		}
	}
}

// counted counts how often something is read.
type counted struct {
	io.ReaderAt
	n *int
}

func (c counted) ReadAt(b []byte, off int64) (int, error) {
	*c.n++
	return c.ReaderAt.ReadAt(b, off)
}

// TestContents reads small members at once, and of larger ones what is asked for.
func TestContents(t *testing.T) {
	for size, reads := range map[int]int{smallMember: 1, smallMember + 2: 3} {
		contents := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		all := Magic + member("a/", contents)
		n := 0
		a, err := Open(counted{strings.NewReader(all), &n}, int64(len(all)))
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		r := a.Contents(0)
		var b [16]byte
		for i := range 3 {
			if _, err := r.ReadAt(b[:], int64(1000*i)); err != nil || string(b[:]) != contents[1000*i:1000*i+16] {
				t.Errorf("%d bytes: at %d is %q, error %v", size, 1000*i, b, err)
			}
		}
		if got, err := io.ReadAll(r); n < reads || (reads == 1) != (n == 1) || err != nil || string(got) != contents {
			t.Errorf("%d bytes: read %d times, error %v, want %d", size, n, err, reads)
		}
	}
}
