package survive

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// TestCheck expects check to report errors in damaged copies of a converted file.
func TestCheck(t *testing.T) {
	const fixture = "../../testdata/bin/amd64/plt"
	path := filepath.Join(t.TempDir(), "converted")
	must.Do(t, kit.WithProduct(func(program, _ string) error {
		_, err := kit.Convert(program, fixture, path, "--format", "2")
		return err
	}))
	good := testfile.Read(t, path)
	f, _ := must.Two(linked.Load(path))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	s := f.Section(sframe.SectionName)
	segment := slices.IndexFunc(f.Progs, func(p elf.Prog64) bool { return p.Type == sframe.PTGNUSFrame })
	for _, tt := range []struct {
		name, want string
		off        uint64
		bits       byte
	}{
		{"nothing", "", 0, 0},
		{"the type of the program header", "PT_GNU_SFRAME", f.Phoff + uint64(segment)*elffile.ProgSize, 1},
		{"the address of the program header", "PT_GNU_SFRAME is not inside",
			f.Phoff + uint64(segment)*elffile.ProgSize + 16, 8},
		{"a row", "the frame is", s.Off + s.Size - 1, 8},
		{"the magic number", "magic", s.Off, 1},
	} {
		b := bytes.Clone(good)
		b[tt.off] ^= tt.bits
		testfile.Write(t, path, b)
		_, err := check(path, table)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestCompare allows a tool to change the converted file only in the way in which it changes the original.
func TestCompare(t *testing.T) {
	old := map[string]string{".text": "a", ".dynamic": "NEEDED 1"}
	rpath := map[string]string{".text": "a", ".dynamic": "RUNPATH 2"}
	other := map[string]string{".text": "a", ".dynamic": "RUNPATH 3"}
	broken := map[string]string{".text": "b", ".dynamic": "NEEDED 1"}
	less := map[string]string{".text": "a"}
	more := map[string]string{".text": "a", ".dynamic": "NEEDED 1", ".new": "c"}
	for _, tt := range []struct {
		name                string
		original, converted map[string]string
		want                string
	}{
		{"none", old, old, ""},
		{"the same", rpath, rpath, ""},
		{"a change of the original only", rpath, old, ""},
		{"a different change", rpath, other, "section .dynamic is changed in a different way than in the original"},
		{"contents", old, broken, "section .text is changed, but not in the original"},
		{"a missing section", old, less, "section .dynamic is changed, but not in the original"},
		{"an added section", old, more, "section .new is changed, but not in the original"},
	} {
		err := compare(change{old, tt.original}, change{old, tt.converted})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
