package elfwrite

import (
	"debug/elf"
	"fmt"
	"os"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
)

// TestInterpreter expects of a converted interpreter what load_elf_interp of old kernels
// takes for granted: nothing to clear after the last segment, and no .bss before it.
func TestInterpreter(t *testing.T) {
	made := interpreter(t)
	files := map[string][]byte{"made": made}
	for _, path := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"} {
		if b, err := os.ReadFile(path); err == nil {
			if old, err := FindSFrame(elftest.Parse(t, b)); err != nil {
				t.Fatalf("%s: %v", path, err)
			} else if old.Section > 0 {
				b = remove(t, b)
			}
			files[path] = b
		}
	}
	for name, old := range files {
		before := elftest.Parse(t, old)
		if n, err := SizeMultiple(before); n != sectionAlign || err != nil {
			t.Errorf("%s is not taken for an interpreter, error %v", name, err)
			continue
		}
		for _, size := range []int{64, 5000 * 8} {
			b := add(t, old, content(size), Options{})
			after := elftest.Parse(t, b)
			if err := image.Compare(before, after); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if inOrder(before) && !inOrder(after) {
				t.Errorf("%s: section headers are out of order", name)
			}
			var fileEnd, memEnd uint64
			last := lastLoad(elftest.Parse(t, b).Progs)
			for i := range after.Progs {
				p := &after.Progs[i]
				if elf.ProgType(p.Type) != elf.PT_LOAD {
					continue
				}
				fileEnd, memEnd = max(fileEnd, p.Vaddr+p.Filesz), max(memEnd, p.Vaddr+p.Memsz)
				if p.Filesz != p.Memsz {
					t.Errorf("%s: PT_LOAD at %#x has %#x bytes in the file and %#x in memory", name, p.Vaddr,
						p.Filesz, p.Memsz)
				}
				if i == last {
					continue
				}
				// What is left of the page is used by ld.so, which expects zeros; a
				// section holds it, so that tools leave it alone.
				if elf.ProgFlag(p.Flags)&elf.PF_W != 0 {
					ends := false
					for j := range after.Sections {
						s := &after.Sections[j]
						ends = ends || s.HasBytes() && s.Alloc() && s.Addr+s.Size == p.Vaddr+p.Filesz
					}
					if !ends || (p.Vaddr+p.Filesz)%4096 != 0 {
						t.Errorf("%s: segment at %#x ends at %#x, which is not the end of a section and a page", name,
							p.Vaddr, p.Vaddr+p.Filesz)
					}
				}
			}
			if fileEnd != memEnd || fileEnd%4096 != 0 {
				t.Errorf("%s: segments end at %#x in the file and %#x in memory; want a page boundary", name,
					fileEnd, memEnd)
			}
			end := uint64(0)
			for i := range after.Sections {
				if s := &after.Sections[i]; s.Alloc() && s.HasBytes() {
					end = max(end, s.Addr+s.Size)
				}
			}
			if s := after.Section(".sframe"); end != fileEnd || s.Addr+s.Size != end {
				t.Errorf("%s: sections end at %#x, the last segment at %#x; strip would cut that off", name,
					end, fileEnd)
			}
		}
	}
}

// TestInterpreterRefused has interpreters for which there is no layout that old kernels load.
func TestInterpreterRefused(t *testing.T) {
	p := elftest.Patch(t.Fatalf, interpreter(t))
	h := p.LastLoad()
	refused(t, "another size", p.B, 1001, "interpreter: an .sframe of 1001 bytes, no multiple of 8, cannot end a page")
	p.Put64(h+elftest.PhMemsz, p.U64(h+elftest.PhFilesz)+1<<20+1)
	refused(t, "a large .bss", p.B, 1000, "interpreter with a .bss of 1048577 bytes, which would become a part of the "+
		"file; at most 1048576 are accepted")
	p.Put64(h+elftest.PhOff, 0x100)
	p.Put64(h+elftest.PhFilesz, 8)
	refused(t, "segments in another order in the file", p.B, 1000, fmt.Sprintf(
		"interpreter whose last segment, at %#x, is not the last one in the file", p.U64(h+elftest.PhVaddr)))
}

// TestSizeMultiple expects sizes that are no multiple of anything but in interpreters.
func TestSizeMultiple(t *testing.T) {
	// with has an entry in the place of DT_SONAME.
	with := func(tag elf.DynTag, value uint64) []byte {
		p := elftest.Patch(t.Fatalf, interpreter(t))
		off := dynamicEntry(p, elf.DT_SONAME)
		p.Put64(off, uint64(tag))
		p.Put64(off+8, value)
		return p.B
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want uint64
	}{
		{"an interpreter", interpreter(t), 8},
		{"a library with an entry point that needs another one", with(elf.DT_NEEDED, 0), 1},
		{"a static PIE", with(elf.DT_FLAGS_1, uint64(elf.DF_1_PIE)), 1},
		{"an interpreter with other flags", with(elf.DT_FLAGS_1, uint64(elf.DF_1_NOW)), 8},
		{"a library", read(t, "pltlib.so"), 1},
		{"a program", read(t, "plt"), 1},
		{"a static program", read(t, "static"), 1},
	} {
		if got, err := SizeMultiple(elftest.Parse(t, tt.b)); err != nil || got != tt.want {
			t.Errorf("%s: a multiple of %d, error %v; want %d", tt.name, got, err, tt.want)
		}
	}
	large := elftest.Patch(t.Fatalf, interpreter(t))
	large.Put64(large.Segment(elf.PT_DYNAMIC, 0)+elftest.PhFilesz, 1<<21)
	large.Append(make([]byte, 1<<21))
	if got, err := SizeMultiple(elftest.Parse(t, large.B)); err == nil ||
		!strings.Contains(err.Error(), "at most 1048576 are accepted") {
		t.Errorf("with many dynamic entries: %d, error %v", got, err)
	}
}

// TestInterpreterInPlace replaces the .sframe that a linker put into an interpreter, which ends its section, by a
// smaller one: that ends where the old one did.
func TestInterpreterInPlace(t *testing.T) {
	p := elftest.Patch(t.Fatalf, interpreter(t))
	s := linkersSection(t, p)
	for _, n := range []uint64{s.Size &^ 7, 40, 8} {
		f := elftest.Parse(t, add(t, p.B, content(int(n)), Options{Force: true}))
		all := typedSections(f)
		if want := s.Addr + (s.Size-n)&^7; len(all) != 1 || all[0].Addr != want || want%8 != 0 || all[0].Size != n {
			t.Errorf("%d bytes in the place of %d at %#x: sections %+v; want address %#x", n, s.Size, s.Addr, all, want)
		}
	}
}
