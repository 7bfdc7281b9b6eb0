package generate

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/readback"
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
	if err := run(top, made); err != nil {
		t.Fatal(err)
	}
	list := func(dir string) (names []string) {
		paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: no files, %v", dir, err)
		}
		for _, p := range paths {
			names = append(names, filepath.Base(p))
		}
		return names
	}
	kept := filepath.Join(top, "conformance/vectors")
	if a, b := list(made), list(kept); !slices.Equal(a, b) {
		t.Errorf("made are %q, kept are %q", a, b)
	}
	size := 0
	for _, name := range append(list(made), "../writers.json") {
		a, err := os.ReadFile(filepath.Join(made, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil {
			t.Error(err)
			continue
		}
		size += len(b)
		if !bytes.Equal(a, b) {
			t.Errorf("%s is not what the sources give now: run scripts/conformance --generate, and look at the difference", name)
		}
	}
	if size > 1<<20 {
		t.Errorf("%d bytes of vectors; want at most 1 MiB", size)
	}
}

// TestAssemble has GNU as and ld make their sections anew.
func TestAssemble(t *testing.T) {
	peer.Binutils(t, "2.40")
	peer.Root(t, "trixie")
	peer.Root(t, "sid")
	got, err := assemble(top)
	if err != nil {
		peer.Missing(t, err.Error())
	}
	want, err := os.ReadFile(filepath.Join(top, linkedFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("GNU as and ld make other sections now: run scripts/conformance --assemble, and look at the difference")
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

// TestEvaluate reads expressions of call frame information.
func TestEvaluate(t *testing.T) {
	f := form{"3", amd64}
	known, err := readback.New(elf.EM_X86_64, f.order, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code   string
		memory bool
		want   string
	}{
		{"\x77\x08", false, "sp+8"}, {"\x77\xa0\x01\x06", false, "*(sp+160)"}, {"\x76\x78", true, "*(fp-8)"},
		{"\x92\x23\x10",
			false, "r35+16"},
		{"\x77\x00\x23\xc8\x01", false, "sp+200"}, {"\x77\x30\x40\x1c", false, "sp+32"}, {"\x77\x30\x08\x28\x22", false,
			"sp+88"},
		{"", false, ""}, {"\x40", false, ""}, {"\x77\x08\x06\x06", false, ""}, {"\x77\x08\x06", true,
			""}, {"\x77\x08\x94\x04", false, ""},
	} {
		r, ok := f.evaluate(known, []byte(tt.code), 0, tt.memory)
		if ok != (tt.want != "") || ok && r.String() != tt.want {
			t.Errorf("% x: %v, %t; want %q", tt.code, r, ok, tt.want)
		}
	}
}
