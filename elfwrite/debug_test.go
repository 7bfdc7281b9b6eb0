package elfwrite

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// split makes a program with debug information, and has it split off; whole is what it was before.
func split(t *testing.T, by string) (whole, prog, debug []byte) {
	t.Helper()
	peer.Look(t, "gcc")
	peer.Look(t, strings.Fields(by)[0])
	dir := t.TempDir()
	source := "#include <stdio.h>\nint twice(int n) { return printf(\"%d\\n\", n); }\n" +
		"int main(int argc, char **argv) { return twice(argc); }\n__attribute__((section(\".init\"))) void init(void) {}\n"
	if err := os.WriteFile(filepath.Join(dir, "prog.c"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	// Start files of the system may have an .sframe.
	cmd := exec.Command("sh", "-ec", "gcc -g -O1 -nostartfiles -Wl,-e,main -o prog prog.c; cp prog whole\n"+by)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", by, err, out)
	}
	var files [3][]byte
	for i, name := range []string{"whole", "prog", "prog.debug"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = b
	}
	return files[0], files[1], files[2]
}

const (
	byObjcopy = "objcopy --only-keep-debug prog prog.debug; strip --strip-unneeded prog"
	byEu      = "eu-strip -f prog.debug prog"
)

// onlyDebug is what objcopy makes of a program as its debug file.
func onlyDebug(t *testing.T, prog []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, prog, 0o777); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(peer.Look(t, "objcopy"), "--only-keep-debug", in, out).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loaded lists what debuggers compare of the sections that are loaded.
func loaded(t *testing.T, b []byte) []string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 {
			all = append(all, fmt.Sprintf("%s at %#x, %d bytes, flags %v, align %d, of %d", s.Name, s.Addr, s.Size,
				s.Flags&^elf.SHF_INFO_LINK, s.Addralign, s.Entsize))
		}
	}
	return all
}

// others returns what is in sections that are not loaded, by their names, and the symbols with the names of their
// sections.
func others(t *testing.T, b []byte) map[string]string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, s := range f.Sections {
		switch {
		case s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOTE || s.Type == elf.SHT_NULL ||
			s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_STRTAB || s.Type == elf.SHT_NOBITS:
			continue
		}
		data, err := io.ReadAll(s.Open())
		if err != nil {
			t.Fatal(err)
		}
		all[s.Name] = string(data)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range symbols {
		where := s.Section.String()
		if int(s.Section) < len(f.Sections) {
			where = f.Sections[s.Section].Name
		}
		if elf.ST_TYPE(s.Info) == elf.STT_SECTION {
			continue // objcopy makes one for each section
		}
		all[fmt.Sprintf("symbol %s %d", s.Name, i)] = fmt.Sprintf("%#x+%d, %d, %s", s.Value, s.Size, s.Info, where)
	}
	return all
}

// sameKeys compares two maps, but for the numbers of symbols.
func sameKeys(t *testing.T, name string, got, want map[string]string) {
	t.Helper()
	list := func(m map[string]string) []string {
		var all []string
		for k, v := range m {
			if strings.HasPrefix(k, "symbol ") {
				k = k[:strings.LastIndexByte(k, ' ')]
			}
			all = append(all, k+": "+v)
		}
		slices.Sort(all)
		return all
	}
	g, w := list(got), list(want)
	if len(w) == 0 || !slices.Equal(g, w) {
		for _, s := range g {
			if !slices.Contains(w, s) {
				t.Errorf("%s: has %.100q", name, s)
			}
		}
		for _, s := range w {
			if !slices.Contains(g, s) {
				t.Errorf("%s: lacks %.100q", name, s)
			}
		}
	}
}

// debugOf writes the debug file for a program.
func debugOf(t *testing.T, debug, prog []byte) []byte {
	t.Helper()
	l, err := PlanDebug(elftest.Parse(t, debug), elftest.Parse(t, prog))
	if err != nil {
		t.Fatal(err)
	}
	return write(t, l, debug, nil)
}

// TestDebug gives a debug file the headers of its program: when that gets an .sframe, one of another size, and none
// again. What objcopy makes of the program with all of its debug information has the same sections.
func TestDebug(t *testing.T) {
	for _, by := range []string{byObjcopy, byEu} {
		whole, prog, debug := split(t, by)
		for _, step := range []struct {
			name string
			size int // of .sframe; 0 for none
		}{{"an .sframe", 100}, {"a larger one", 5000}, {"none again", 0}} {
			name := by[:strings.IndexByte(by, ' ')] + ", " + step.name
			now, all := prog, whole
			if step.size > 0 {
				now, all = add(t, prog, content(step.size), Options{}), add(t, whole, content(step.size), Options{})
			}
			debug = debugOf(t, debug, now)
			if got, want := loaded(t, debug), loaded(t, now); !slices.Equal(got, want) {
				t.Errorf("%s: sections\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			want := others(t, onlyDebug(t, all))
			got := others(t, debug)
			if by == byEu { // which leaves .comment in both
				for _, m := range []map[string]string{got, want} {
					delete(m, ".comment")
					delete(m, ".gnu_debuglink")
				}
			}
			sameKeys(t, name, got, want)
			f, of := elftest.Parse(t, debug), elftest.Parse(t, now)
			if len(f.Progs) != len(of.Progs) {
				t.Fatalf("%s: %d segments, want %d", name, len(f.Progs), len(of.Progs))
			}
			for i := range f.Progs {
				got, want := f.Progs[i], of.Progs[i]
				if got.Type != want.Type || got.Vaddr != want.Vaddr || got.Memsz != want.Memsz ||
					got.Flags != want.Flags || got.Align != want.Align {
					t.Errorf("%s: segment %d is %+v, want %+v", name, i, got, want)
				}
				if elf.ProgType(got.Type) != elf.PT_NOTE {
					if by == byObjcopy && got.Filesz != 0 && got.Off != 0 && elf.ProgType(got.Type) != elf.PT_PHDR &&
						got.Type != uint32(elf.PT_GNU_PROPERTY) {
						t.Errorf("%s: segment %d says that it has bytes: %+v", name, i, got)
					}
					continue
				}
				a, err := f.ReadAt("note", got.Off, got.Filesz)
				if err != nil {
					t.Fatal(err)
				}
				b, err := of.ReadAt("note", want.Off, want.Filesz)
				if err != nil || !bytes.Equal(a, b) {
					t.Errorf("%s: the notes of segment %d differ, error %v", name, i, err)
				}
			}
			if f.Shoff%8 != 0 || f.Shoff+uint64(len(f.Sections))*64 != uint64(len(debug)) {
				t.Errorf("%s: %d section headers at %#x of %#x bytes", name, len(f.Sections), f.Shoff, len(debug))
			}
			for i, s := range f.Sections {
				if s.HasBytes() && s.Addralign > 1 && s.Off%min(s.Addralign, 4096) != 0 {
					t.Errorf("%s: section %d (%s) is at %#x, want a multiple of %d", name, i, s.Name, s.Off,
						s.Addralign)
				}
			}
			sections := 0
			for _, h := range f.Progs {
				if h.Type == sframe.PTGNUSFrame {
					sections++
					if h.Filesz != 0 {
						t.Errorf("%s: PT_GNU_SFRAME has %d bytes", name, h.Filesz)
					}
				}
			}
			if (sections == 1) != (step.size > 0) {
				t.Errorf("%s: %d PT_GNU_SFRAME", name, sections)
			}
		}
	}
}

// TestDebugRefused refuses a file that is not the program's debug file.
func TestDebugRefused(t *testing.T) {
	_, prog, debug := split(t, byObjcopy)
	object := elftest.BigObject(elf.EM_S390, 5).Bytes()
	patched := func(b []byte, change func(p *elftest.Patcher)) []byte {
		p := elftest.Patch(t.Fatalf, slices.Clone(b))
		change(p)
		return p.B
	}
	none := func(p *elftest.Patcher) { p.Put64(elftest.EhShoff, 0); p.Put16(60, 0); p.Put16(62, 0) }
	for _, tt := range []struct {
		name        string
		debug, prog []byte
		want        string
	}{
		{"an object", object, prog, "relocatable objects are not supported"},
		{"a program that is an object", debug, object, "relocatable objects are not supported"},
		{"another machine", patched(debug, func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_AARCH64)) }), prog,
			"it is for machine EM_AARCH64"},
		{"another type", patched(debug, func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_EXEC)) }), prog,
			"it is for machine EM_X86_64, LittleEndian, ELF type ET_EXEC, and the program for EM_X86_64, LittleEndian, ET_DYN"},
		{"a program without headers", debug, patched(prog, none), "the program has no section headers"},
		{"without headers", patched(debug, none), prog, "it has no section headers with names"},
		{"without names", patched(debug, func(p *elftest.Patcher) { p.Put16(62, 0) }), prog,
			"it has no section headers with names"},
		{"another size", patched(debug, func(p *elftest.Patcher) {
			p.Put64(p.Section(".text")+32,
				p.U64(p.Section(".text")+32)+1)
		}), prog, "section .text has "},
		{"one section less", patched(debug,
			func(p *elftest.Patcher) { h := p.Section(".init"); p.Put64(h+8, p.U64(h+8)&^uint64(elf.SHF_ALLOC)) }),
			prog, "it has no section .init, which the program has at 0x"},
		{"one section more", patched(debug,
			func(p *elftest.Patcher) { h := p.Section(".comment"); p.Put64(h+8, uint64(elf.SHF_ALLOC)) }), prog,
			"section .comment at 0x0 is not in the program"},
		{"contents beyond the end", patched(debug,
			func(p *elftest.Patcher) { p.Put64(p.Section(".debug_info")+32, uint64(len(debug))) }), prog,
			"do not fit the file of"},
		{"contents that are there twice", patched(debug, func(p *elftest.Patcher) {
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
}
