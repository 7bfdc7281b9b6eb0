package survive

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// TestChecks damages a converted file in many ways.
func TestChecks(t *testing.T) {
	peer.Look(t, "gcc")
	s := &subject{arch: "amd64", name: "library", file: "libsubject.so", script: "CC=gcc\n" + library}
	err := s.build()
	defer os.RemoveAll(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "converted")
	tool := filepath.Join(t.TempDir(), "cfi2sframe")
	if err := kit.BuildProduct(tool); err != nil {
		t.Fatal(err)
	}
	if _, err := kit.Convert(tool, s.path(), good, "--format", "2"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	f, err := linked.Open(s.path())
	if err != nil {
		t.Fatal(err)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name, want string
		damage     func(f *elffile.File, b []byte)
	}{
		{"none", "", func(*elffile.File, []byte) {}},
		{"no name", "exactly under PT_GNU_SFRAME", func(f *elffile.File, b []byte) {
			b[bytes.Index(b, []byte("\x00.sframe\x00"))+1] = 'x'
		}},
		{"not allocated", "exactly under PT_GNU_SFRAME", func(f *elffile.File, b []byte) {
			b[header(f, ".sframe")+8] = 0
		}},
		{"moved", "exactly under PT_GNU_SFRAME", func(f *elffile.File, b []byte) {
			b[header(f, ".sframe")+16] ^= 8
		}},
		{"no program header", "no PT_GNU_SFRAME", func(f *elffile.File, b []byte) {
			b[program(f, elf.ProgType(sframe.PTGNUSFrame))] ^= 1
		}},
		{"writable", "read-only", func(f *elffile.File, b []byte) {
			b[program(f, elf.PT_LOAD)+4] |= byte(elf.PF_W)
		}},
		{"other rows", "the frame is", func(f *elffile.File, b []byte) {
			s := f.Section(".sframe")
			b[s.Off+s.Size-1] ^= 8
		}},
		{"no section", "magic", func(f *elffile.File, b []byte) {
			b[f.Section(".sframe").Off] = 0
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			damaged := bytes.Clone(b)
			tt.damage(elftest.Parse(t, b), damaged)
			path := filepath.Join(t.TempDir(), "damaged")
			testfile.Write(t, path, string(damaged))
			_, err := check(path, table)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// header returns the file offset of a section header.
func header(f *elffile.File, name string) uint64 {
	for i := range f.Sections {
		if f.Sections[i].Name == name {
			return f.Shoff + uint64(i)*elffile.SectionSize
		}
	}
	panic(name + " is missing")
}

// program returns the file offset of the last program header of a type.
func program(f *elffile.File, typ elf.ProgType) (off uint64) {
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == typ {
			off = f.Phoff + uint64(i)*elffile.ProgSize
		}
	}
	return off
}

// TestCompare allows a change only if the original also gets it.
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
		{"only the original", rpath, old, ""},
		{"another", rpath, other, "section .dynamic becomes another than in the original"},
		{"contents", old, broken, "section .text is changed, but not in the original"},
		{"a section less", old, less, "section .dynamic is changed, but not in the original"},
		{"a section more", old, more, "section .new is changed, but not in the original"},
	} {
		err := compare(change{old, tt.original}, change{old, tt.converted})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
