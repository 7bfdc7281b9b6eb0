package elfwrite

import (
	"bytes"
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/sframe"
)

// TestFixtures adds sections of several sizes to every fixture, replaces and removes them, and compares loaded
// contents.
func TestFixtures(t *testing.T) {
	// The original bytes are not restored if a page was inserted, .bss was filled, or headers were reordered.
	changed := []string{"interpreter", "amd64/static", "amd64/padding-fixed", "amd64/far.so"}
	allFixtures(t, func(name string, old []byte) {
		before := elftest.Parse(t, old)
		if at, err := FindSFrame(before); err != nil || at != (SFrame{Segment: -1}) {
			t.Errorf("%s: .sframe is %+v, %v", name, at, err)
		}
		if _, err := PlanRemoval(before); !errors.Is(err, ErrNone) {
			t.Errorf("%s: error %v, want %v", name, err, ErrNone)
		}
		for _, size := range []int{32, 4096, 100000} {
			with, without := roundTrip(t, name, old, size, 1000)
			if bytes.Equal(without, old) == slices.Contains(changed, name) {
				t.Errorf("%s: %d bytes become %d; they are the same: %t", name, len(old), len(without),
					bytes.Equal(without, old))
			}
			f := elftest.Parse(t, without)
			if f.Section(".sframe") != nil || f.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil ||
				bytes.Contains(without, []byte(".sframe")) {
				t.Errorf("%s: .sframe is still present", name)
			}
			after := elftest.Parse(t, with)
			if _, err := Plan(after, 10, Options{}); !errors.Is(err, ErrExists) {
				t.Errorf("%s: error %v, want %v", name, err, ErrExists)
			}
			if added := len(after.Progs) - len(f.Progs); added < 1 || added > 2 {
				t.Errorf("%s: %d program headers of .sframe", name, added)
			}
			if after.Phoff != before.Phoff {
				t.Errorf("%s: program headers moved from %#x to %#x", name, before.Phoff, after.Phoff)
			}
			if h := after.Prog(elf.PT_PHDR); h != nil && (h.Filesz != uint64(len(after.Progs))*elffile.ProgSize ||
				h.Memsz != h.Filesz) {
				t.Errorf("%s: PT_PHDR is %+v for %d headers", name, h, len(after.Progs))
			}
			if a, b := countNotes(before), countNotes(after); a != b {
				t.Errorf("%s: %d PT_NOTEs become %d", name, a, b)
			}
			checkBuildID(t, name, after)
			if name != "interpreter" && inOrder(before) {
				checkHeaderOrder(t, name, before, after)
			}
		}
	})
}

// TestBare converts files without section headers: only program headers and dynamic entries remain.
func TestBare(t *testing.T) {
	converted := 0
	allFixtures(t, func(name string, b []byte) {
		clear(b[40:48]) // e_shoff
		clear(b[60:64]) // e_shnum, e_shstrndx
		if _, err := Plan(elftest.Parse(t, b), 100, Options{}); err == nil {
			converted++
			with, without := roundTrip(t, name, b, 104, 1000)
			if a, b := elftest.Parse(t, with), elftest.Parse(t, without); len(a.Progs) != len(b.Progs) {
				t.Errorf("%s: %d program headers become %d, instead of PT_NULL", name, len(a.Progs), len(b.Progs))
			}
		} else if !strings.Contains(err.Error(), "without section headers") &&
			!strings.Contains(err.Error(), "the segment ends") {
			t.Errorf("%s: %v", name, err)
		}
	})
	if converted == 0 {
		t.Error("no file was converted")
	}
}

// countNotes returns the number of PT_NOTEs.
func countNotes(f *elffile.File) (n int) {
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == elf.PT_NOTE {
			n++
		}
	}
	return n
}

// checkBuildID expects the build-id note in the first page of the file.
func checkBuildID(t *testing.T, name string, f *elffile.File) {
	t.Helper()
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		t.Errorf("%s has no build-id", name)
		return
	}
	if s.Off+s.Size > 4096 {
		t.Errorf("%s: build-id at file offset %#x", name, s.Off)
	}
	for i := range f.Progs {
		p := &f.Progs[i]
		if elf.ProgType(p.Type) == elf.PT_NOTE && p.Off <= s.Off && s.Off+s.Size <= p.Off+p.Filesz &&
			s.Addr-p.Vaddr == s.Off-p.Off {
			return
		}
	}
	t.Errorf("%s: no PT_NOTE contains the build-id", name)
}

// inOrder reports whether the headers of allocated sections are in file order. Sections located by dynamic entries may
// be anywhere.
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

// checkHeaderOrder expects the headers of allocated sections in file order, .sframe first in the new segment, and each
// section on the same side of its linked section (sh_link) as before.
func checkHeaderOrder(t *testing.T, name string, before, f *elffile.File) {
	t.Helper()
	ahead := func(f *elffile.File, s *elffile.Section) bool {
		return s.Link > 0 && &f.Sections[s.Link] != s &&
			s.Link > uint32(slices.IndexFunc(f.Sections, func(t elffile.Section) bool { return t.Name == s.Name }))
	}
	if !inOrder(f) {
		t.Errorf("%s: section headers are out of order", name)
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if old := before.Section(s.Name); s.Alloc() && old != nil && ahead(f, s) != ahead(before, old) {
			t.Errorf("%s: %s is on the other side of its linked section", name, s.Name)
		}
	}
	load := f.Progs[0]
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == elf.PT_LOAD {
			load = f.Progs[i]
		}
	}
	if s := f.Section(".sframe"); load.Off != s.Off || load.Vaddr != s.Addr || elf.ProgFlag(load.Flags) != elf.PF_R {
		t.Errorf("%s: the last PT_LOAD %+v does not start with .sframe %+v", name, load, s)
	}
}
