package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"testing"

	"cfi2sframe/elffile"
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
		if is, err := isInterpreter(before); !is || err != nil {
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
	// It does not matter what was there before.
	first := add(t, made, content(4096), Options{})
	if again := add(t, first, content(64), Options{Force: true}); !bytes.Equal(again,
		add(t, made, content(64), Options{})) {
		t.Error("a replaced .sframe gives another file than a new one")
	}
	for _, name := range []string{"prologue", "undefra", "rareg.so"} {
		if is, err := isInterpreter(elftest.Parse(t, read(t, name))); is || err != nil {
			t.Errorf("%s is taken for an interpreter, error %v", name, err)
		}
	}
	// A static-pie also has an entry point and no libraries, but has a flag.
	pie := read(t, "pltlib.so")
	binary.LittleEndian.PutUint64(pie[24:], 0x340)
	dyn := elftest.Parse(t, pie).Prog(elf.PT_DYNAMIC)
	for off := dyn.Off; off < dyn.Off+dyn.Filesz; off += elffile.DynSize {
		if elf.DynTag(binary.LittleEndian.Uint64(pie[off:])) == elf.DT_SONAME {
			binary.LittleEndian.PutUint64(pie[off:], uint64(elf.DT_FLAGS_1))
			binary.LittleEndian.PutUint64(pie[off+8:], uint64(elf.DF_1_PIE))
			if is, err := isInterpreter(elftest.Parse(t, pie)); is || err != nil {
				t.Errorf("a static-pie is taken for an interpreter, error %v", err)
			}
			// ld.so of Debian has other flags.
			binary.LittleEndian.PutUint64(pie[off+8:], uint64(elf.DF_1_NOW))
			if is, err := isInterpreter(elftest.Parse(t, pie)); !is || err != nil {
				t.Errorf("without DF_1_PIE it is taken for none, error %v", err)
			}
			return
		}
	}
	t.Error("there is no DT_SONAME")
}
