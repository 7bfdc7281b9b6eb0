package outfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestSpool has contents in memory and in a file, with zeros, and such as end early or cannot be read or written.
func TestSpool(t *testing.T) {
	for _, size := range []int{0, 1, smallSpool - 1, smallSpool, smallSpool + 1, 3*smallSpool + 5} {
		want := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
		if size > 2*smallSpool {
			clear(want[smallSpool : 2*smallSpool])
			clear(want[3*smallSpool:])
		}
		s, err := NewSpool(iotest.HalfReader(bytes.NewReader(append(want, "rest"...))), int64(size))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(s.Reader())
		if err != nil || !bytes.Equal(got, want) || s.Size() != int64(size) || (s.file != nil) != (size > smallSpool) {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
		if same, err := Equal(s.Reader(), bytes.NewReader(want)); !same || err != nil {
			t.Errorf("%d bytes: %v, %v", size, same, err)
		}
		if size > 0 {
			want[size-1] ^= 1
			if same, err := Equal(s.Reader(), bytes.NewReader(want)); same || err != nil {
				t.Errorf("%d bytes, the last another one: %v, %v", size, same, err)
			}
		}
		s.Close()
		if _, err := NewSpool(bytes.NewReader(want), int64(size)+1); err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of %d: %v", size, size+1, err)
		}
		own := errors.New("no disk")
		if _, err := NewSpool(io.MultiReader(bytes.NewReader(want), iotest.ErrReader(own)), int64(size)+1); err != own {
			t.Errorf("%d bytes and an error: %v", size, err)
		}
	}
	var none *Spool
	if b, err := io.ReadAll(none.Reader()); len(b) > 0 || err != nil {
		t.Errorf("%d bytes of no Spool, %v", len(b), err)
	}
	none.Close()
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	if _, err := NewSpool(strings.NewReader(strings.Repeat("x", smallSpool+1)), smallSpool+1); err == nil || !strings.Contains(err.Error(), "cannot write to ") {
		t.Errorf("%v", err)
	}
	own := errors.New("no disk")
	for _, second := range []io.Reader{strings.NewReader("x"), iotest.ErrReader(own)} {
		if same, err := Equal(iotest.ErrReader(own), second); same || err != own {
			t.Errorf("streams with an error are equal: %v, %v", same, err)
		}
	}
	if same, err := Equal(strings.NewReader("x"), iotest.ErrReader(own)); same || err != own {
		t.Errorf("streams with an error are equal: %v, %v", same, err)
	}
}
