package elfwrite

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// buildSplit links a program and splits off its debug information.
func buildSplit(t *testing.T) (prog, debug []byte) {
	t.Helper()
	for _, tool := range []string{"gcc", "objcopy", "strip"} {
		peer.Look(t, tool)
	}
	dir := t.TempDir()
	source := "int main(void) { return 0; }\n__attribute__((section(\".init\"))) void init(void) {}\n"
	testfile.Write(t, filepath.Join(dir, "prog.c"), source)
	// The system's start files may contain an .sframe.
	cmd := exec.Command("sh", "-ec", "gcc -g -O1 -nostartfiles -Wl,-e,main -o prog prog.c\n"+
		"objcopy --only-keep-debug prog prog.debug; strip --strip-unneeded prog")
	cmd.Dir = dir
	must.Run(t, cmd)
	return testfile.Read(t, filepath.Join(dir, "prog")), testfile.Read(t, filepath.Join(dir, "prog.debug"))
}

// checkDebug expects the updated debug file (after) to have the segments and loaded sections of prog, and the contents
// and symbols of the old debug file (before).
func checkDebug(t *testing.T, name string, before, after, prog *elffile.File) {
	t.Helper()
	if len(after.Progs) != len(prog.Progs) {
		t.Fatalf("%s: %d program headers; the program has %d", name, len(after.Progs), len(prog.Progs))
	}
	// eu-strip does not clear the file sizes of segments.
	sizes := slices.ContainsFunc(before.Progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 && h.Filesz > 0
	})
	for i := range prog.Progs {
		a, p := after.Progs[i], prog.Progs[i]
		if sizes && a.Filesz != p.Filesz && a.Type != sframe.PTGNUSFrame {
			t.Errorf("%s: program header %d has %d bytes; the program has %d", name, i, a.Filesz, p.Filesz)
		}
		if a.Type != p.Type || a.Vaddr != p.Vaddr || a.Memsz != p.Memsz || a.Flags != p.Flags || a.Align != p.Align {
			t.Errorf("%s: program header %d is %+v; the program has %+v", name, i, a, p)
		}
		if a.Type == sframe.PTGNUSFrame && a.Filesz != 0 {
			t.Errorf("%s: PT_GNU_SFRAME has %d bytes", name, a.Filesz)
		}
		if elf.ProgType(a.Type) == elf.PT_NOTE {
			got, err := after.ReadAt("note", a.Off, a.Filesz)
			if want, err2 := prog.ReadAt("note", p.Off, p.Filesz); err != nil || err2 != nil ||
				!bytes.Equal(got, want) {
				t.Errorf("%s: the notes of segment %d differ, errors %v, %v", name, i, err, err2)
			}
		}
	}
	loaded := func(f *elffile.File) (all []string) {
		for i := range f.Sections {
			if s := &f.Sections[i]; s.Alloc() {
				all = append(all, fmt.Sprintf("%s at %#x, %d bytes, flags %#x, align %d, of %d", s.Name, s.Addr, s.Size,
					s.Flags&^uint64(elf.SHF_INFO_LINK), s.Addralign, s.Entsize))
			}
		}
		return all
	}
	if got, want := loaded(after), loaded(prog); !slices.Equal(got, want) {
		t.Errorf("%s: sections\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range before.Sections {
		s := &before.Sections[i]
		if !s.HasBytes() || s.Name == ".shstrtab" || s.Name == ".symtab" || s.Type == sframe.SHTGNUSFrame {
			continue
		}
		want := must.Get(before.ReadSection(s))(t)
		got := []byte(nil)
		if x := after.Section(s.Name); x != nil && x.HasBytes() {
			got, _ = after.ReadSection(x)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: section %s has different contents", name, s.Name)
		}
	}
	if got, want := symbols(t, after), symbols(t, before); !slices.Equal(got, want) {
		t.Errorf("%s: symbols\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	loadedEnd := elffile.HeaderSize + uint64(len(after.Progs))*elffile.ProgSize
	for _, s := range after.Sections {
		if s.Alloc() && s.HasBytes() {
			loadedEnd = max(loadedEnd, s.Off+s.Size)
		}
	}
	for i, s := range after.Sections {
		if elf.SectionType(s.Type) == elf.SHT_NOBITS && s.Off != loadedEnd { // ELF gABI: the conceptual placement
			t.Errorf("%s: section %d (%s) is at %#x, want %#x", name, i, s.Name, s.Off, loadedEnd)
		}
		if s.HasBytes() && s.Addralign > 1 && s.Off%min(s.Addralign, firstPage) != 0 {
			t.Errorf("%s: section %d (%s) is at %#x, want a multiple of %d", name, i, s.Name, s.Off, s.Addralign)
		}
	}
	if after.Shoff%8 != 0 || oldHeaders(after).End != after.Size {
		t.Errorf("%s: %d section headers at %#x of %#x bytes", name, len(after.Sections), after.Shoff, after.Size)
	}
}

// symbols returns the symbols of a file with the names of their sections, except those of .sframe.
func symbols(t *testing.T, f *elffile.File) (all []string) {
	t.Helper()
	must.Do(t, f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		in := f.Sections[s.Section].Name
		all = append(all, fmt.Sprintf("%s in %s, value %#x", f.SymbolName(table, s.Name), in, s.Value))
	}))
	return all
}

// TestDebugRefused expects errors for files that are not the program's debug file. In a debug file from objcopy, the
// set of segments with file contents must not change.
func TestDebugRefused(t *testing.T) {
	prog, debug := buildSplit(t)
	object := elftest.BigObject(elf.EM_S390, 5).Bytes()
	patched := func(b []byte, change func(p *elftest.Patcher)) []byte {
		p := elftest.Patch(t.Fatalf, slices.Clone(b))
		change(p)
		return p.B
	}
	for _, tt := range []struct {
		name        string
		debug, prog []byte
		want        string
	}{
		{"an object", object, prog, "relocatable objects are not supported"},
		{"a program that is an object", debug, object, "relocatable objects are not supported"},
		{"a different machine", patched(debug, func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_AARCH64)) }), prog,
			"it is for machine EM_AARCH64"},
		{"a different type", patched(debug, func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_EXEC)) }), prog,
			"it is for machine EM_X86_64, LittleEndian, ELF type ET_EXEC, " +
				"but the program is for EM_X86_64, LittleEndian, ET_DYN"},
		{"a program without headers", debug, patched(prog, bare), "the program has no section headers"},
		{"without headers", patched(debug, bare), prog, "it has no section headers with names"},
		{"without names", patched(debug, func(p *elftest.Patcher) { p.Put16(62, 0) }), prog,
			"it has no section headers with names"},
		{"too many segments", debug, patched(prog, func(p *elftest.Patcher) {
			p.Put64(elftest.EhPhoff, uint64(len(p.B)))
			p.Put16(elftest.EhPhnum, maxDebugSegments+1)
			p.B = append(p.B, make([]byte, (maxDebugSegments+1)*elffile.ProgSize)...)
		}), "or segments (4097)"},
		{"a different size", patched(debug, func(p *elftest.Patcher) {
			p.Put64(p.Section(".text")+32, p.U64(p.Section(".text")+32)+1)
		}), prog, "section .text has "},
		{"a different size, up to the end of a page", patched(debug, func(p *elftest.Patcher) {
			p.Put64(p.Section(".text")+elftest.ShSize, 4096-p.U64(p.Section(".text")+elftest.ShAddr)%4096)
		}), prog, "section .text has "},
		{"a missing section", patched(debug,
			func(p *elftest.Patcher) { h := p.Section(".init"); p.Put64(h+8, p.U64(h+8)&^uint64(elf.SHF_ALLOC)) }),
			prog, "it has no section .init, which the program has at 0x"},
		{"a section twice in the program", debug, patched(prog,
			func(p *elftest.Patcher) { p.Put32(p.Section(".text"), p.U32(p.Section(".init"))) }),
			"it has no section .init"},
		{"an additional section", patched(debug,
			func(p *elftest.Patcher) { h := p.Section(".comment"); p.Put64(h+8, uint64(elf.SHF_ALLOC)) }), prog,
			"section .comment at 0x0 is not in the program"},
		{"contents past the end", patched(debug,
			func(p *elftest.Patcher) { p.Put64(p.Section(".debug_info")+32, uint64(len(debug))) }), prog,
			"do not fit in the file of"},
		{"overlapping contents", patched(debug, func(p *elftest.Patcher) {
			for _, name := range []string{".debug_info", ".debug_str", ".debug_line", ".debug_abbrev"} {
				p.Put64(p.Section(name)+24, 0)
				p.Put64(p.Section(name)+32, uint64(len(debug))/2)
			}
		}), prog, "its sections overlap"},
	} {
		_, err := PlanDebug(elftest.Parse(t, tt.debug), elftest.Parse(t, tt.prog))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	d := elftest.Parse(t, debug)
	l := must.Get(PlanDebug(d, elftest.Parse(t, prog)))(t)
	if bytes.Contains(write(t, l, debug, nil), []byte(sframe.SectionName)) {
		t.Error("the debug file of a program without .sframe has its name")
	}
	headers := elffile.HeaderSize + uint64(len(l.progs))*elffile.ProgSize
	for i, h := range l.progs {
		if was := d.Progs[i]; (h.Filesz > 0) != (was.Filesz > 0) ||
			elf.ProgType(h.Type) == elf.PT_LOAD && h.Filesz > 0 && h.Filesz < headers {
			t.Errorf("program header %d is %+v; that of objcopy was %+v", i, h, was)
		}
	}
	noSegments := patched(debug, func(p *elftest.Patcher) {
		p.Put64(elftest.EhPhoff, 0)
		p.Put16(elftest.EhPhnum, 0)
	})
	l = must.Get(PlanDebug(elftest.Parse(t, noSegments), elftest.Parse(t, prog)))(t)
	if f := elftest.Parse(t, write(t, l, noSegments, nil)); len(f.Progs) != 0 || f.Phoff != 0 {
		t.Errorf("%d program headers at %#x; the debug file had none", len(f.Progs), f.Phoff)
	}
}
