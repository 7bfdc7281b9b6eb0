package elfwrite

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

const fixtures = "../testdata/bin/amd64/"

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(fixtures + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// content is an .sframe that says nothing; this package looks at the magic number only.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	if n >= 2 {
		binary.LittleEndian.PutUint16(b, sframe.Magic)
	}
	return b
}

// add plans and writes, and returns the new file.
func add(t *testing.T, old, section []byte, opt Options) []byte {
	t.Helper()
	l, err := Plan(elftest.Parse(t, old), uint64(len(section)), opt)
	if err != nil {
		t.Fatal(err)
	}
	b := write(t, l, old, section)
	f := elftest.Parse(t, b)
	h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if h == nil || h.Vaddr != l.Addr {
		t.Fatalf("PT_GNU_SFRAME is %+v, the layout says address %#x", h, l.Addr)
	}
	if got, err := f.ReadAt(".sframe", h.Off, h.Filesz); err != nil || !bytes.Equal(got, section) {
		t.Fatalf("contents of .sframe differ, error %v", err)
	}
	return b
}

// write writes the new file and returns it.
func write(t *testing.T, l *Layout, old, section []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, old, 0o666); err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := l.Write(t.Context(), dst, src, section); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestInterruptedCopy ends the context before the copy begins, which notices that after its
// first part.
func TestInterruptedCopy(t *testing.T) {
	const size = 24 << 20
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &Layout{copies: []extent{{0, 0, size}}}
	dst, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := l.Write(ctx, dst, bytes.NewReader(make([]byte, size)), nil); err != context.Canceled {
		t.Errorf("error is %v", err)
	}
	if info, err := dst.Stat(); err != nil || info.Size() >= size {
		t.Errorf("%d of %d bytes were copied, error %v", info.Size(), size, err)
	}
}

// TestUnchanged writes an object that has program headers, which is odd but no reason to lose
// them.
func TestUnchanged(t *testing.T) {
	old := read(t, "plt")
	binary.LittleEndian.PutUint16(old[16:], uint16(elf.ET_REL))
	f := elftest.Parse(t, old)
	if !f.IsObject() || len(f.Progs) == 0 {
		t.Fatalf("type %d, %d program headers", f.Type, len(f.Progs))
	}
	if !bytes.Equal(write(t, Unchanged(f), old, nil), old) {
		t.Error("it was changed")
	}
}

// setProg changes a program header of a file.
func setProg(t *testing.T, b []byte, i int, change func(*elf.Prog64)) {
	t.Helper()
	f := elftest.Parse(t, b)
	p := f.Progs[i]
	change(&p)
	var buf bytes.Buffer
	if err := binary.Write(&buf, f.Order, &p); err != nil {
		t.Fatal(err)
	}
	copy(b[f.Phoff+uint64(i)*elffile.ProgSize:], buf.Bytes())
}

func progIndex(t *testing.T, f *elffile.File, typ elf.ProgType) int {
	t.Helper()
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == typ {
			return i
		}
	}
	t.Fatalf("no %v", typ)
	return -1
}

// TestRepack adds sections of several sizes to every fixture, whose heads have to
// give way, and compares what is loaded.
func TestRepack(t *testing.T) {
	files, err := filepath.Glob(fixtures + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, path := range files {
		old := read(t, filepath.Base(path))
		for _, size := range []int{28, 4096, 100000} {
			b := add(t, old, content(size), Options{})
			before, after := elftest.Parse(t, old), elftest.Parse(t, b)
			if err := image.Compare(before, after); err != nil {
				t.Errorf("%s with %d bytes: %v", path, size, err)
			}
			if after.Phoff != before.Phoff {
				t.Errorf("%s: program headers moved from %#x to %#x", path, before.Phoff, after.Phoff)
			}
			if a, b := notes(before), notes(after); a != b {
				t.Errorf("%s: %d PT_NOTEs become %d", path, a, b)
			}
			buildID(t, path, after)
			if inOrder(before) {
				order(t, path, before, after)
			}
		}
	}
}

// notes returns how many PT_NOTEs there are.
func notes(f *elffile.File) (n int) {
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == elf.PT_NOTE {
			n++
		}
	}
	return n
}

// buildID expects the build-id note in the first page of the file.
func buildID(t *testing.T, path string, f *elffile.File) {
	t.Helper()
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		t.Errorf("%s has no build-id", path)
		return
	}
	if s.Off+s.Size > 4096 {
		t.Errorf("%s: build-id at file offset %#x", path, s.Off)
	}
	for i := range f.Progs {
		p := &f.Progs[i]
		if elf.ProgType(p.Type) == elf.PT_NOTE && p.Off <= s.Off && s.Off+s.Size <= p.Off+p.Filesz &&
			s.Addr-p.Vaddr == s.Off-p.Off {
			return
		}
	}
	t.Errorf("%s: no PT_NOTE holds the build-id", path)
}

// inOrder reports whether the allocated sections' headers are in the order of the file.
// What dynamic entries locate may be anywhere.
func inOrder(f *elffile.File) bool {
	var last uint64
	for i := range f.Sections {
		s := &f.Sections[i]
		switch elf.SectionType(s.Type) {
		case elf.SHT_GNU_HASH, elf.SHT_HASH, elf.SHT_DYNSYM, elf.SHT_STRTAB, elf.SHT_GNU_VERSYM, elf.SHT_GNU_VERNEED,
			elf.SHT_GNU_VERDEF, elf.SHT_RELA:
			continue
		}
		if s.Alloc() && s.HasBytes() {
			if s.Off < last {
				return false
			}
			last = s.Off
		}
	}
	return true
}

// order expects the allocated sections' headers in the order of the file, .sframe
// first of those in the new segment, and sections before or after those that they
// refer to as in the file before.
func order(t *testing.T, path string, before, f *elffile.File) {
	t.Helper()
	ahead := func(f *elffile.File, s *elffile.Section) bool {
		return s.Link > 0 && &f.Sections[s.Link] != s &&
			s.Link > uint32(slices.IndexFunc(f.Sections, func(t elffile.Section) bool { return t.Name == s.Name }))
	}
	if !inOrder(f) {
		t.Errorf("%s: section headers are out of order", path)
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if old := before.Section(s.Name); s.Alloc() && old != nil && ahead(f, s) != ahead(before, old) {
			t.Errorf("%s: %s is on another side of the section that it refers to", path, s.Name)
		}
	}
	load := f.Progs[0]
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == elf.PT_LOAD {
			load = f.Progs[i]
		}
	}
	if s := f.Section(".sframe"); load.Off != s.Off || load.Vaddr != s.Addr || elf.ProgFlag(load.Flags) != elf.PF_R {
		t.Errorf("%s: the last PT_LOAD %+v does not begin with .sframe %+v", path, load, s)
	}
}

// TestReuse has entries that can be used again.
func TestReuse(t *testing.T) {
	old := read(t, "prologue")
	f := elftest.Parse(t, old)
	// PT_GNU_STACK and PT_GNU_RELRO are given up for the test.
	for _, typ := range []elf.ProgType{elf.PT_NULL, elf.ProgType(sframe.PTGNUSFrame)} {
		b := bytes.Clone(old)
		for _, i := range []int{progIndex(t, f, elf.PT_GNU_STACK), progIndex(t, f, elf.PT_GNU_RELRO)} {
			setProg(t, b, i, func(p *elf.Prog64) { *p = elf.Prog64{Type: uint32(typ)} })
		}
		after := elftest.Parse(t, add(t, b, content(100), Options{}))
		if len(after.Progs) != len(f.Progs) {
			t.Errorf("%v: %d program headers, want %d", typ, len(after.Progs), len(f.Progs))
		}
		if err := image.Compare(elftest.Parse(t, b), after); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
		// Nothing had to move.
		if s := after.Section(".interp"); s.Off != f.Section(".interp").Off {
			t.Errorf("%v: .interp moved", typ)
		}
	}
}

// TestPayload keeps bytes after everything at the end.
func TestPayload(t *testing.T) {
	payload := []byte("PK\x03\x04 something that finds itself from the end of the file")
	old := append(read(t, "prologue"), payload...)
	b := add(t, old, content(1000), Options{})
	if !bytes.HasSuffix(b, payload) {
		t.Error("the payload is not at the end")
	}
	f := elftest.Parse(t, b)
	if end := f.Shoff + uint64(len(f.Sections))*elffile.SectionSize; end != uint64(len(b)-len(payload)) {
		t.Errorf("section headers end at %#x, the payload starts at %#x", end, len(b)-len(payload))
	}
	if err := image.Compare(elftest.Parse(t, old), f); err != nil {
		t.Error(err)
	}
}

// TestExisting refuses to add a second section, and replaces one when told to.
func TestExisting(t *testing.T) {
	old := read(t, "plt")
	first := add(t, old, content(1000), Options{})
	if _, err := Plan(elftest.Parse(t, first), 10, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("error %v, want %v", err, ErrExists)
	}
	for _, size := range []int{1000, 500, 5000} {
		b := add(t, first, content(size), Options{Force: true})
		f := elftest.Parse(t, b)
		if err := image.Compare(elftest.Parse(t, old), f); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		n := 0
		for i := range f.Sections {
			if f.Sections[i].Name == ".sframe" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d bytes: %d sections .sframe", size, n)
		}
		if size == 1000 && !bytes.Equal(b, first) {
			t.Error("the same section again gives another file")
		}
	}
}

// TestRefused says why.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, b []byte) []byte
		want   string
	}{
		{"relocatable", func(t *testing.T, b []byte) []byte {
			binary.LittleEndian.PutUint16(b[16:], uint16(elf.ET_REL))
			return b
		}, "ELF type ET_REL"},
		{"overlapping segments", func(t *testing.T, b []byte) []byte {
			setProg(t, b, lastPTLoad(t, b), func(p *elf.Prog64) { p.Vaddr = 0x10 })
			return b
		}, "overlaps the one before it"},
		{"segment outside the file", func(t *testing.T, b []byte) []byte {
			setProg(t, b, lastPTLoad(t, b), func(p *elf.Prog64) { p.Off = 1 << 40 })
			return b
		}, "do not fit the file"},
		{"address space used up", func(t *testing.T, b []byte) []byte {
			setProg(t, b, lastPTLoad(t, b), func(p *elf.Prog64) { p.Memsz = 1<<64 - 4096 - p.Vaddr + 1 })
			return b
		}, "no addresses are left"},
		{"no section headers", func(t *testing.T, b []byte) []byte {
			copy(b[40:48], make([]byte, 8)) // e_shoff
			copy(b[60:64], make([]byte, 4)) // e_shnum, e_shstrndx
			return b
		}, "without section headers it is not known what may move"},
		{"no dynamic tags", func(t *testing.T, b []byte) []byte {
			setProg(t, b, progIndex(t, elftest.Parse(t, b), elf.PT_DYNAMIC),
				func(p *elf.Prog64) { p.Type = uint32(elf.PT_NULL) })
			setProg(t, b, progIndex(t, elftest.Parse(t, b), elf.PT_NULL), func(p *elf.Prog64) { p.Type = 0x6fffffff })
			return b
		}, "cannot be moved"},
		{"bytes of nobody", func(t *testing.T, b []byte) []byte {
			// .interp, which comes first, loses its last 4 bytes to no section.
			f := elftest.Parse(t, b)
			for i := range f.Sections {
				if s := &f.Sections[i]; s.Name == ".interp" {
					binary.LittleEndian.PutUint64(b[f.Shoff+uint64(i)*elffile.SectionSize+32:], s.Size-4)
				}
			}
			setProg(t, b, progIndex(t, f, elf.PT_INTERP), func(p *elf.Prog64) { p.Filesz -= 4; p.Memsz -= 4 })
			return b
		}, "belong to no section"},
	} {
		_, err := Plan(elftest.Parse(t, tt.change(t, read(t, "alloca"))), 1000, Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func lastPTLoad(t *testing.T, b []byte) int {
	t.Helper()
	last := -1
	for i, p := range elftest.Parse(t, b).Progs {
		if elf.ProgType(p.Type) == elf.PT_LOAD {
			last = i
		}
	}
	return last
}

// TestLeftOver takes what patchelf left behind for unused.
func TestLeftOver(t *testing.T) {
	b := read(t, "alloca")
	f := elftest.Parse(t, b)
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Name == ".interp" {
			copy(b[s.Off:], bytes.Repeat([]byte("X"), int(s.Size)))
			binary.LittleEndian.PutUint64(b[f.Shoff+uint64(i)*elffile.SectionSize+32:], 0)
		}
	}
	setProg(t, b, progIndex(t, f, elf.PT_INTERP), func(p *elf.Prog64) { *p = elf.Prog64{Type: 0x6fffffff} })
	after := elftest.Parse(t, add(t, b, content(100), Options{}))
	if err := image.Compare(elftest.Parse(t, b), after); err != nil {
		t.Error(err)
	}
}

// TestFront has a static executable, whose head cannot move: everything moves up by a page,
// and the notes go into it, so that the build-id is in the first page.
func TestFront(t *testing.T) {
	old := read(t, "static")
	before := elftest.Parse(t, old)
	after := elftest.Parse(t, add(t, old, content(100), Options{}))
	if err := image.Compare(before, after); err != nil {
		t.Error(err)
	}
	load, first := after.Progs[0], before.Progs[0]
	if load.Off != 0 || load.Vaddr != first.Vaddr-4096 || load.Filesz != first.Filesz+4096 ||
		after.Phoff != elffile.HeaderSize {
		t.Errorf("first PT_LOAD %+v, program headers at %#x", load, after.Phoff)
	}
	// What may be found through __ehdr_start is still there.
	off, ok := after.FileOffset(first.Vaddr, elffile.HeaderSize)
	if b, err := after.ReadAt("old header", off, elffile.HeaderSize); !ok || err != nil ||
		!bytes.Equal(b, old[:elffile.HeaderSize]) {
		t.Errorf("at %#x is not the old ELF header; error %v", first.Vaddr, err)
	}
	for _, tt := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"any address", func(b []byte) { binary.LittleEndian.PutUint16(b[16:], uint16(elf.ET_DYN)) },
			".rela.plt at file offset 0x1b8 cannot be moved"},
		{"low address", func(b []byte) { setProg(t, b, 0, func(p *elf.Prog64) { p.Vaddr = 0x10000 }) },
			"no page is free before address 0x10000"},
	} {
		b := bytes.Clone(old)
		tt.change(b)
		if _, err := Plan(elftest.Parse(t, b), 100, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	// Alignments of 2 MiB would not hold any more.
	b := bytes.Clone(old)
	setProg(t, b, 0, func(p *elf.Prog64) { p.Align = 2 << 20 })
	if err := image.Compare(elftest.Parse(t, b), elftest.Parse(t, add(t, b, content(100), Options{}))); err != nil {
		t.Error(err)
	}
}

// remove writes the file without its .sframe.
func remove(t *testing.T, old []byte) []byte {
	t.Helper()
	l, err := PlanRemoval(elftest.Parse(t, old))
	if err != nil {
		t.Fatal(err)
	}
	return write(t, l, old, nil)
}

// allFixtures calls fn with every linked fixture of all ABIs, and an interpreter.
func allFixtures(t *testing.T, fn func(name string, b []byte)) {
	t.Helper()
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d fixtures: %v", len(files), err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fn(path, b)
	}
	fn("interpreter", interpreter(t))
}

// TestAgain replaces an .sframe of another size, and removes one. Whatever was there
// before, the same file comes out.
func TestAgain(t *testing.T) {
	allFixtures(t, func(name string, old []byte) {
		want := add(t, old, content(1000), Options{})
		for _, size := range []int{64, 1000, 50000} {
			first := add(t, old, content(size), Options{})
			if got := add(t, first, content(1000), Options{Force: true}); !bytes.Equal(got, want) {
				t.Errorf("%s: another file with an .sframe of %d bytes before", name, size)
			}
			without := remove(t, first)
			f := elftest.Parse(t, without)
			if err := image.Contents(elftest.Parse(t, old), f); err != nil {
				t.Errorf("%s without .sframe: %v", name, err)
			}
			if f.Section(".sframe") != nil || f.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil ||
				bytes.Contains(without, []byte(".sframe")) {
				t.Errorf("%s: .sframe is still there", name)
			}
			// Segments that .sframe had to itself are gone.
			if n := len(elftest.Parse(t, first).Progs) - len(f.Progs); n < 1 || n > 2 {
				t.Errorf("%s: %d program headers were removed", name, n)
			}
			if got := add(t, without, content(1000), Options{}); !bytes.Equal(got, want) {
				t.Errorf("%s: another file after an .sframe of %d bytes was removed", name, size)
			}
		}
		if _, err := PlanRemoval(elftest.Parse(t, old)); !errors.Is(err, ErrNone) {
			t.Errorf("%s: error %v, want %v", name, err, ErrNone)
		}
	})
}

// TestRestored expects the original bytes where .sframe is removed: linkers have sections at the head without a gap,
// in the order of their headers. Where a page was put in front it stays, and the .bss of an interpreter stays filled.
func TestRestored(t *testing.T) {
	changed := []string{
		"interpreter", "../testdata/bin/amd64/static", "../testdata/bin/amd64/padding-fixed",
		"../testdata/bin/amd64/far.so", // whose headers have another order
	}
	allFixtures(t, func(name string, old []byte) {
		if got := remove(t, add(t, old, content(1000), Options{})); bytes.Equal(got, old) == slices.Contains(changed,
			name) {
			t.Errorf("%s: %d bytes become %d; want the same bytes: %t", name, len(old), len(got),
				!slices.Contains(changed, name))
		}
	})
	// lld has the section names before other sections.
	dir := t.TempDir()
	source, obj, lib := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o"), filepath.Join(dir, "a.so")
	const text = ".globl f, g, h\nf: g: h: .cfi_startproc\nret\n.cfi_endproc\n.data\n.quad 1\n"
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{"as", "--64", source, "-o", obj},
		{"ld.lld", "-m", "elf_x86_64", "-shared", "--eh-frame-hdr", obj, "-o", lib}} {
		if out, err := exec.Command(peer.Look(t, cmd[0]), cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	old, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	if f := elftest.Parse(t, old); f.Section(".shstrtab").Off >= f.Section(".strtab").Off {
		t.Error("the section names come last")
	}
	if without := remove(t, add(t, old, content(1000), Options{})); !bytes.Equal(without, old) {
		t.Errorf("by lld: %d bytes become %d", len(old), len(without))
	}
}

// TestAgainAligned is TestAgain for files in which what is not loaded, and so lies after
// the segment of .sframe, is aligned: there is padding between them.
func TestAgainAligned(t *testing.T) {
	tried := 0
	allFixtures(t, func(name string, old []byte) {
		f := elftest.Parse(t, old)
		for _, align := range []uint64{16, 32, 64} {
			at := slices.IndexFunc(f.Sections, func(s elffile.Section) bool {
				return s.Type != 0 && s.Flags&uint64(elf.SHF_ALLOC) == 0 && s.HasBytes() && s.Off%align == 0
			})
			if at < 0 {
				continue
			}
			tried++
			old := slices.Clone(old)
			f.Order.PutUint64(old[f.Shoff+uint64(at)*elffile.SectionSize+48:], align)
			want := add(t, old, content(1000), Options{})
			for _, size := range []int{72, 1000, 1008, 50008} {
				first := add(t, old, content(size), Options{})
				if got := add(t, first, content(1000), Options{Force: true}); !bytes.Equal(got, want) {
					t.Errorf("%s, aligned to %d: another file with an .sframe of %d bytes before", name, align, size)
				}
			}
		}
	})
	if tried == 0 {
		t.Error("no fixture has a section that can be aligned")
	}
}

// TestLinkersSection replaces an .sframe as GNU ld puts it, in the middle of a segment: in
// its place if that is large enough, else elsewhere.
func TestLinkersSection(t *testing.T) {
	old := read(t, "prologue")
	f := elftest.Parse(t, old)
	// .eh_frame becomes one.
	var index int
	for i := range f.Sections {
		if f.Sections[i].Name == ".eh_frame" {
			index = i
		}
	}
	s := f.Sections[index]
	binary.LittleEndian.PutUint16(old[s.Off:], sframe.Magic)
	binary.LittleEndian.PutUint32(old[f.Shoff+uint64(index)*elffile.SectionSize+4:], sframe.SHTGNUSFrame)
	setProg(t, old, progIndex(t, f, elf.PT_GNU_EH_FRAME), func(p *elf.Prog64) {
		*p = elf.Prog64{Type: sframe.PTGNUSFrame, Off: s.Off, Vaddr: s.Addr, Filesz: s.Size, Memsz: s.Size}
	})
	for _, size := range []int{int(s.Size), 40, 200, 217, 1001, 4000} {
		b := add(t, old, content(size), Options{Force: true})
		after := elftest.Parse(t, b)
		n := 0
		for i := range after.Sections {
			if after.Sections[i].Type == sframe.SHTGNUSFrame {
				n++
				s2 := &after.Sections[i]
				if (s2.Off == s.Off) != (size <= int(s.Size)) {
					t.Errorf("%d bytes: .sframe at %#x, the old one with %d bytes at %#x", size, s2.Off, s.Size, s.Off)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d bytes: %d sections", size, n)
		}
		if got := b[s.Off:][:s.Size]; size == 4000 && len(bytes.Trim(got, "\x00")) > 0 {
			t.Error("the old section's bytes are still there")
		}
	}
	without := elftest.Parse(t, remove(t, old))
	if without.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil || len(without.Progs) != len(f.Progs)-1 ||
		len(without.Sections) != len(f.Sections)-1 {
		t.Errorf("%d program headers and %d sections are left of %d and %d", len(without.Progs), len(without.Sections),
			len(f.Progs), len(f.Sections))
	}
}

// TestBare has no section headers: program headers and dynamic entries are all there is.
func TestBare(t *testing.T) {
	converted := 0
	allFixtures(t, func(name string, b []byte) {
		f := elftest.Parse(t, b)
		if f.Order != binary.LittleEndian {
			return
		}
		order := f.Order
		order.PutUint64(b[40:], 0) // e_shoff
		order.PutUint32(b[60:], 0) // e_shnum, e_shstrndx
		l, err := Plan(elftest.Parse(t, b), 100, Options{})
		if err != nil {
			if !strings.Contains(err.Error(), "without section headers it is not known what may move") &&
				!strings.Contains(err.Error(), "the segment ends") {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		converted++
		out := write(t, l, b, content(100))
		if err := image.Compare(elftest.Parse(t, b), elftest.Parse(t, out)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := add(t, out, content(100), Options{Force: true}); !bytes.Equal(again, out) {
			t.Errorf("%s: another file the second time", name)
		}
		without := remove(t, out)
		if err := image.Contents(elftest.Parse(t, b), elftest.Parse(t, without)); err != nil {
			t.Errorf("%s without .sframe: %v", name, err)
		}
		if again := add(t, without, content(100), Options{}); !bytes.Equal(again, out) {
			t.Errorf("%s: another file after it was removed, of %d bytes; it had %d", name, len(again), len(out))
		}
	})
	if converted == 0 {
		t.Error("none was converted")
	}
}

// TestManySections has more sections than a symbol's field can number, and symbols in the
// last of them.
func TestManySections(t *testing.T) {
	old := read(t, "prologue")
	f := elftest.Parse(t, old)
	const many = 70000
	var symtab int
	for i := range f.Sections {
		if elf.SectionType(f.Sections[i].Type) == elf.SHT_SYMTAB {
			symtab = i
		}
	}
	sym := &f.Sections[symtab]
	num := sym.Size / elffile.SymSize
	sections := make([]elf.Section64, 0, many)
	for i := range f.Sections {
		sections = append(sections, f.Sections[i].Section64)
	}
	for len(sections) < many-1 {
		sections = append(sections, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: sym.Off, Size: 1})
	}
	b := bytes.Clone(old)
	indexes := uint64(len(b))
	sections = append(sections, elf.Section64{Type: uint32(elf.SHT_SYMTAB_SHNDX), Link: uint32(symtab), Off: indexes,
		Size: 4 * num, Entsize: 4, Addralign: 4})
	b = append(b, make([]byte, 4*num)...)
	b = append(b, make([]byte, -len(b)&7)...)
	// The last symbol is in the last section but one, and the name table's index does not
	// fit the ELF header either.
	binary.LittleEndian.PutUint32(b[indexes+4*(num-1):], many-2)
	binary.LittleEndian.PutUint16(b[sym.Off+(num-1)*elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
	sections[many-2] = sections[f.Shstrndx]
	sections[0].Size, sections[0].Link = many, many-2
	binary.LittleEndian.PutUint64(b[40:], uint64(len(b)))
	binary.LittleEndian.PutUint16(b[60:], 0)
	binary.LittleEndian.PutUint16(b[62:], uint16(elf.SHN_XINDEX))
	var table bytes.Buffer
	if err := binary.Write(&table, binary.LittleEndian, sections); err != nil {
		t.Fatal(err)
	}
	b = append(b, table.Bytes()...)
	out := add(t, b, content(100), Options{})
	after := elftest.Parse(t, out)
	if len(after.Sections) != many+1 || after.Section(".sframe") != &after.Sections[many] || after.Shstrndx != many-2 {
		t.Errorf("%d sections, names in %d", len(after.Sections), after.Shstrndx)
	}
	if err := image.Compare(elftest.Parse(t, b), after); err != nil {
		t.Error(err)
	}
	last := 0
	if err := after.Symbols(elf.SHT_SYMTAB,
		func(_ *elffile.Section, s elffile.Symbol) { last = s.Section }); err != nil || last != many-2 {
		t.Errorf("the last symbol is in section %d, want %d (error %v)", last, many-2, err)
	}
	// Sections after one that is removed move down, and symbols with them.
	without := elftest.Parse(t, remove(t, out))
	if err := without.Symbols(elf.SHT_SYMTAB,
		func(_ *elffile.Section, s elffile.Symbol) { last = s.Section }); err != nil || last != many-2 ||
		len(without.Sections) != many {
		t.Errorf("the last symbol is in section %d of %d, want %d (error %v)", last, len(without.Sections), many-2, err)
	}
}
