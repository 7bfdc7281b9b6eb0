package generate

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/lab/conformance/vector"
)

const top = "../../.."

// TestGenerate makes all files anew, and expects the same bytes.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "vectors")
	if err := os.Mkdir(made, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := run(made); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(made, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files, %v", made, err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		a, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(top, "conformance/vectors", name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not what the sources give now, error %v: run scripts/conformance --generate, "+
				"and look at the difference", name, err)
		}
	}
}

// TestEncode has a section as the document of the format lays it out.
func TestEncode(t *testing.T) {
	f := form{"2", amd64}
	m := &maker{form: f}
	s := f.new(one(0x1000, 0x20, m.rows(0, 4)...))
	got, _ := s.encode()
	want := "\xe2\xde\x02\x01\x03\x00\xf8\x00\x01\x00\x00\x00\x02\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x14\x00\x00\x00" +
		"\x00\x90\xff\xff\x20\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x03\x08\x04\x03\x10"
	if string(got) != want {
		t.Errorf("% x; want % x", got, want)
	}
	if text := vector.Expects(s.expect(16)); len(text) != 4 || text[1].From != 0x1000 || text[2].From != 0x1004 ||
		text[2].To != 0x1020 || text[3].Row != nil {
		t.Errorf("%+v", text)
	}
	f = form{"3", s390x}
	m = &maker{form: f}
	s = f.new(one(0x1000, 0x20, m.rows(0)...))
	got, _ = s.encode()
	want = "\xde\xe2\x03\x05\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x10" +
		"\xff\xff\xff\xff\xff\xff\x8f\xe4\x00\x00\x00\x20\x00\x00\x00\x00" + "\x00\x01\x00\x00\x00" + "\x00\x03\x08"
	if string(got) != want {
		t.Errorf("% x; want % x", got, want)
	}
}
