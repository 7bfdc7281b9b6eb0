package filecopy

import (
	"io"
	"strings"
	"testing"
)

// TestSized reads a file that has its size, and one that ends before.
func TestSized(t *testing.T) {
	for _, tt := range []struct {
		size, off int64
		n         int // of 4
		end       bool
		want      string
	}{
		{6, 2, 4, false, ""},
		{6, 4, 2, true, ""},
		{6, 6, 0, true, ""},
		{7, 4, 2, false, "the file ends early: at offset 0x6, and not 0x7"},
		{9, 6, 0, false, "the file ends early: at offset 0x6, and not 0x9"},
	} {
		r := Sized(Sized(strings.NewReader("abcdef"), tt.size), tt.size)
		n, err := r.ReadAt(make([]byte, 4), tt.off)
		if n != tt.n || (err == io.EOF) != tt.end || tt.want != "" && (err == nil || err.Error() != tt.want) ||
			tt.want == "" && !tt.end && err != nil {
			t.Errorf("%+v: %d bytes, %v", tt, n, err)
		}
	}
}
