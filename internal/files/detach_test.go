package files_test

import (
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestDetachTogether detaches .sframe from a file in two concurrent runs: both succeed if their results are equal.
func TestDetachTogether(t *testing.T) {
	in := filepath.Join(fixtures, "amd64", "plt")
	detach := func(v sframe.Version) files.Options {
		return files.Options{Work: files.Detach(false, convert.Options{Version: v}, ""), Detach: true}
	}
	for _, tt := range []struct {
		name  string
		old   string         // contents of an existing output
		other sframe.Version // of the other run
		err   string
	}{
		{"new", "", sframe.V2, ""},
		{"new, other version", "", sframe.V3, "was created meanwhile"},
		{"old", "old", sframe.V2, ""},
		{"old, other version", "old", sframe.V3, "the file was replaced or removed meanwhile; nothing was written"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		if tt.old != "" {
			testfile.Write(t, out, tt.old)
		}
		var want []byte
		opt := detach(sframe.V2)
		opt.Accept = func() string { // the other run writes its result when this one has opened the output
			must.Get(files.Convert(t.Context(), in, out, detach(tt.other)))(t)
			want = testfile.Read(t, out)
			return ""
		}
		_, err := files.Convert(t.Context(), in, out, opt)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v; want %q", tt.name, err, tt.err)
		}
		expectFile(t, tt.name, out, want)
	}
}
