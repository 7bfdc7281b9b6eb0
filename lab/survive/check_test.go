package survive

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestChecks expects damage of all kinds to be found.
func TestChecks(t *testing.T) {
	peer.Look(t, "gcc")
	w, err := newWorkshop(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{name: "library", arch: amd64, file: "libsubject.so", build: library("gcc")}
	if err := w.prepare(s); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "converted")
	if _, err := files.Convert(context.Background(), s.path, good, files.Options{Options: convert.Options{Version: sframe.V2}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	table := load(t, s.path)

	for _, tt := range []struct {
		name, want string
		damage     func(f *elffile.File, b []byte)
	}{
		{"none", "", func(*elffile.File, []byte) {}},
		{"no name", ".sframe is gone", func(f *elffile.File, b []byte) {
			b[bytes.Index(b, []byte("\x00.sframe\x00"))+1] = 'x'
		}},
		{"not allocated", "SHF_ALLOC", func(f *elffile.File, b []byte) {
			b[header(f, ".sframe")+8] = 0
		}},
		{"moved", "PT_GNU_SFRAME has addresses", func(f *elffile.File, b []byte) {
			b[header(f, ".sframe")+16] ^= 8
		}},
		{"no program header", "PT_GNU_SFRAME is gone", func(f *elffile.File, b []byte) {
			b[program(f, elf.ProgType(sframe.PTGNUSFrame))] ^= 1
		}},
		{"writable", "PF_W", func(f *elffile.File, b []byte) {
			b[program(f, elf.PT_LOAD)+4] |= byte(elf.PF_W)
		}},
		{"other rows", "mismatches", func(f *elffile.File, b []byte) {
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
			f := elftest.Parse(t, damaged)
			s, err := placed(f)
			if err == nil {
				_, err = verified(f, s, table)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func load(t *testing.T, path string) *cfi.Table {
	t.Helper()
	f, done, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
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

// TestCompare expects a change to be allowed only if the original gets it, too.
func TestCompare(t *testing.T) {
	old := map[string]content{".text": {size: 1, text: "a"}, ".dynamic": {text: "NEEDED 1\n", list: true}}
	rpath := map[string]content{".text": {size: 1, text: "a"}, ".dynamic": {text: "RUNPATH 2\nNEEDED 1\n", list: true}}
	other := map[string]content{".text": {size: 1, text: "a"}, ".dynamic": {text: "RUNPATH 3\nNEEDED 1\n", list: true}}
	broken := map[string]content{".text": {size: 1, text: "b"}, ".dynamic": old[".dynamic"]}
	less := map[string]content{".text": old[".text"]}
	for _, tt := range []struct {
		name                string
		original, converted map[string]content
		want                string
	}{
		{"none", old, old, ""},
		{"the same", rpath, rpath, ""},
		{"only the original", rpath, old, ""},
		{"another", rpath, other, "section .dynamic does not become what that of the original does: RUNPATH 3, expected RUNPATH 2"},
		{"contents", old, broken, "section .text is changed"},
		{"a section less", old, less, "section .dynamic is changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := compare(change{old, tt.original}, change{old, tt.converted})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestSymbols expects symbols in terms of sections, whatever their indexes.
func TestSymbols(t *testing.T) {
	f := &elffile.File{Order: binary.LittleEndian, Sections: make([]elffile.Section, 2)}
	f.Sections[1].Name, f.Sections[1].Addr = ".data", 0x1000
	sym := make([]byte, elffile.SymSize)
	sym[0], sym[6] = 5, 1
	binary.LittleEndian.PutUint64(sym[8:], 0x1008)
	const want = "symbol 0 in .data+0x8 (name 5, info 0, other 0, size 0)\n"
	if got := symbols(f, sym); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
