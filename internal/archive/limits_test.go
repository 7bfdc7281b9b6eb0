package archive

import (
	"errors"
	"fmt"
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
	for n, want := range map[int]string{maxMembers: "<nil>", maxMembers +
		1: fmt.Sprintf("archive at offset %#x: more than 524288 members", 8+60*maxMembers)} {
		all := Magic + strings.Repeat(one, n)
		a, err := Open(strings.NewReader(all), int64(len(all)))
		if fmt.Sprint(err) != want || err == nil && len(a.Members) != n {
			t.Errorf("%d members: error %v, want %s", n, err, want)
		}
	}
}
