package outfile

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEqual(t *testing.T) {
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1} {
		text := strings.Repeat("x", n)
		if same, err := Equal(strings.NewReader(text), strings.NewReader(text)); !same || err != nil {
			t.Errorf("%d bytes: %v, %v", n, same, err)
		}
		if same, err := Equal(strings.NewReader(text+"y"), strings.NewReader(text+"z")); same || err != nil {
			t.Errorf("%d bytes, and a different one: %v, %v", n, same, err)
		}
	}
	failing := errors.New("no disk")
	for _, second := range []io.Reader{strings.NewReader("x"), iotest.ErrReader(failing)} {
		if same, err := Equal(iotest.ErrReader(failing), second); same || err != failing {
			t.Errorf("streams with an error are equal: %v, %v", same, err)
		}
	}
	if same, err := Equal(strings.NewReader("x"), iotest.ErrReader(failing)); same || err != failing {
		t.Errorf("streams with an error are equal: %v, %v", same, err)
	}
}
