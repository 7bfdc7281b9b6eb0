package report

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// withDebug returns a linked file with the given sections of debug information.
func withDebug(order elftest.Order, sections map[string][]byte) []byte {
	o := elftest.NewObject()
	o.Header.Type, o.Big = uint16(elf.ET_DYN), order == binary.BigEndian
	if o.Big {
		o.Header.Machine = uint16(elf.EM_S390)
	}
	for name, b := range sections {
		o.Add(".debug_"+name, elf.SHT_PROGBITS, 0, b)
	}
	return o.Bytes()
}

// sized returns bytes after their number.
func sized(order elftest.Order, parts ...[]byte) []byte {
	b := slices.Concat(parts...)
	return append(order.AppendUint32(nil, uint32(len(b))), b...)
}

// lineTable returns a table of a version (DWARF 5, section 6.2.4) with the given names and instructions.
func lineTable(order elftest.Order, version uint16, names, instructions []byte) []byte {
	header := slices.Concat([]byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, names)
	sizes := []byte{8, 0}
	if version < 5 {
		sizes = nil
	}
	if version < 4 {
		header = slices.Delete(header, 1, 2)
	}
	return sized(order, order.AppendUint16(nil, version), sizes, sized(order, header), instructions)
}

// setAddress is the instruction DW_LNE_set_address, and endSequence is DW_LNE_end_sequence.
func setAddress(order elftest.Order, addr uint64) []byte {
	return order.AppendUint64([]byte{0, 9, 2}, addr)
}

var endSequence = []byte{0, 1, 1}

func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// Forms of names (DWARF 5, section 7.5.6).
const fmData2, fmString, fmBlock, fmData1, fmStrp, fmUdata, fmData16, fmLineStrp = 5, 8, 9, 0x0b, 0x0e, 0x0f, 0x1e, 0x1f

// The names of version 5 for the path /d/f, and of version 4 for d/f.
var (
	newNames = []byte{1, 1, fmString, 1, '/', 'd', 0, 2, 1, fmString, 2, fmData1, 2, 'f', 0, 0, 'f', 0, 0}
	oldNames = []byte("d\x00\x00f\x00\x01\x00\x00\x00")
)

// TestLineTables has tables of all versions in both byte orders: code from 0x1000 to 0x1800 is line 1 of the first
// file, and discarded code from 0 to 0x2000 is line 2.
func TestLineTables(t *testing.T) {
	for _, order := range []elftest.Order{binary.LittleEndian, binary.BigEndian} {
		offset := func(n uint32) []byte { return order.AppendUint32(nil, n) }
		program := slices.Concat(
			setAddress(order, 0x1000), []byte{1}, setAddress(order, 0x1800), endSequence,
			setAddress(order, 0), []byte{3, 1, 1, 2}, uleb(0x2000), endSequence,
		)
		table := func(version uint16, names []byte) []byte { return lineTable(order, version, names, program) }
		// Entries can have more than names (section 6.2.4.1), by any form.
		const md5, vendor = 5, 0x2001
		rich := slices.Concat([]byte{1, 1, fmLineStrp, 2}, offset(0), offset(6),
			[]byte{4, md5, fmData16, 2, fmUdata}, uleb(vendor), []byte{fmBlock, 1, fmStrp, 2},
			slices.Repeat(slices.Concat(make([]byte, 16), []byte{1, 2, 0xff, 0xff}, offset(3)), 2))
		inDir := slices.Concat([]byte{1, 1, fmString, 2}, []byte("/c\x00d\x00"),
			[]byte{2, 1, fmString, 2, fmData2, 2, 'f', 0, 0, 0, 'f', 0}, order.AppendUint16(nil, 1))
		lineStr := []byte("/none\x00/src\x00")
		lines := func(b ...[]byte) map[string][]byte { return map[string][]byte{"line": slices.Concat(b...)} }
		for _, tt := range []struct {
			name     string
			sections map[string][]byte
			want     string // the file of 0x1234, or ""
			err      string // part of the error, or ""
		}{
			{"version 2", lines(table(2, oldNames)), "d/f", ""},
			{"version 3", lines(table(3, oldNames)), "d/f", ""},
			{"version 4", lines(table(4, oldNames)), "d/f", ""},
			{"version 5", lines(table(5, newNames)), "/d/f", ""},
			{"relative to the directory of the compilation", lines(table(5, inDir)), "/c/d/f", ""},
			{"other versions", lines(table(1, nil), table(6, nil), table(4, oldNames)), "d/f", ""},
			{"no directory", lines(table(4, []byte("\x00f\x00\x09\x00\x00\x00"))), "f", ""},
			{"an absolute name", lines(table(4, []byte("d\x00\x00/f\x00\x01\x00\x00\x00"))), "/f", ""},
			{"no file", lines(table(4, []byte{0, 0})), "", ""},
			{"names elsewhere", map[string][]byte{"line": table(5, rich), "line_str": lineStr, "str": []byte("no\x00f.c\x00")},
				"/src/f.c", ""},
			{"names that are missing", map[string][]byte{"line": table(5, rich), "line_str": lineStr, "str": []byte("no\x00")},
				"", "table at .debug_line+0x0: a name without an end"},
			{"no lines", nil, "", errNoLines.Error()},
			{"an error in the second table", lines(table(4, oldNames), []byte{0xff}), "d/f", "4 bytes where 1 are left"},
		} {
			got := ""
			err := findLines(elftest.Parse(t, withDebug(order, tt.sections)), []uint64{0x1234},
				func(_ int, file string, line int) { got = fmt.Sprintf("%s:%d", file, line) })
			if want := tt.want + strings.Repeat(":1", min(len(tt.want), 1)); got != want {
				t.Errorf("%v, %s: %q; want %q", order, tt.name, got, want)
			}
			if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, %s: %v; want an error with %q", order, tt.name, err, tt.err)
			}
		}
	}
}

// TestHostileLines has tables that claim more than there is, or that would take very long.
func TestHostileLines(t *testing.T) {
	le := binary.LittleEndian
	rows := slices.Concat(setAddress(le, 0x1000), []byte{1, 2, 0x80, 0x10}, endSequence) // from 0x1000 to 0x1800
	table := func(names, instructions []byte) []byte { return lineTable(le, 5, names, instructions) }
	for _, tt := range []struct {
		name string
		line []byte
		want string // in the error, or "" if the line is found
	}{
		{"nothing wrong", table(newNames, rows), ""},
		{"2^40 directories of no bytes", table(append([]byte{0}, uleb(1<<40)...), rows), "more work than 33"},
		{"2^40 files of no bytes", table(append([]byte{0, 0, 0}, uleb(1<<40)...), rows), "more work than 33"},
		{"2^63 directories", table(append([]byte{1, 1, fmString}, uleb(1<<63)...), rows), "a name without an end"},
		{"sequences over all addresses", table(newNames, bytes.Repeat(rows, 20_000)), "more work than 33"},
		{"a name of 8 KiB", lineTable(le, 4, append([]byte{0}, append(bytes.Repeat([]byte("x"), 8192), 0)...), rows),
			"of more than 4096 bytes"},
		{"a table past the end", []byte{0xff, 0xff, 0, 0, 4, 0}, "65535 bytes where 2 are left"},
		{"a header past the end", sized(le, []byte{4, 0, 0xff, 0, 0, 0}), "255 bytes where 0 are left"},
		{"line range 0", bytes.Replace(table(newNames, rows), []byte{0xfb, 14, 13}, []byte{0xfb, 0, 13}, 1),
			"line range 0"},
		{"line range 0 in version 4", bytes.Replace(lineTable(le, 4, oldNames, rows), []byte{0xfb, 14, 13},
			[]byte{0xfb, 0, 13}, 1), "line range 0"},
		{"discarded sequences over all addresses", table(newNames, bytes.Repeat(slices.Concat(setAddress(le, 0),
			[]byte{1, 2, 0x80, 0x40}, endSequence), 20_000)), "more work than 33"},
		{"names without end", lineTable(le, 4, append([]byte{0}, bytes.Repeat([]byte("f\x00\x00\x00\x00"), 1<<20)...), rows),
			"more work than 38"},
		{"an unknown form", table([]byte{1, 1, 0x77, 1}, rows), "form 0x77 is not known"},
		{"an instruction past the end", table(newNames, []byte{0, 100, 1}), "100 bytes where 1 are left"},
		{"a number without an end", table(newNames, append([]byte{2}, bytes.Repeat([]byte{0x80}, 10)...)),
			"LEB128 number longer than 64 bits"},
	} {
		addrs := make([]uint64, 2048)
		for i := range addrs {
			addrs[i] = 0x1000 + uint64(i)
		}
		got := ""
		err := findLines(elftest.Parse(t, withDebug(le, map[string][]byte{"line": tt.line})), addrs,
			func(_ int, file string, line int) { got = file })
		if tt.want == "" && (err != nil || got != "/d/f") || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// A failing reader gives an error for what has the byte at an offset, if it is armed.
type failing struct {
	io.ReaderAt
	at    uint64
	armed bool
}

func (f *failing) ReadAt(b []byte, off int64) (int, error) {
	if f.armed && f.at-uint64(off) < uint64(len(b)) {
		return 0, errors.New("the disk is gone")
	}
	return f.ReaderAt.ReadAt(b, off)
}

// TestLineReadErrors says which section could not be read.
func TestLineReadErrors(t *testing.T) {
	le := binary.LittleEndian
	names := slices.Concat([]byte{1, 1, fmLineStrp, 1, 0, 0, 0, 0, 0, 0})
	b := withDebug(le, map[string][]byte{"line": lineTable(le, 5, names, nil), "line_str": []byte("/d\x00")})
	for _, name := range []string{".debug_line", ".debug_line_str"} {
		for want, edit := range map[string]func(s *elffile.Section, r *failing){
			"the disk is gone":    func(s *elffile.Section, r *failing) { r.at, r.armed = s.Off, true },
			"do not fit the file": func(s *elffile.Section, _ *failing) { s.Off = 1 << 40 },
			"compress":            func(s *elffile.Section, _ *failing) { s.Flags |= uint64(elf.SHF_COMPRESSED) },
		} {
			r := &failing{ReaderAt: bytes.NewReader(b)}
			f, err := elffile.New(r, int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			edit(f.Section(name), r)
			err = findLines(f, []uint64{0x1234}, func(int, string, int) { t.Errorf("%s: a line is found", name) })
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "section "+name) {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
	}
}

// lineSources have functions in two files, one of them in another directory.
var lineSources = map[string]string{
	"main.c": `#include "sub/inline.h"
int g(int);
__attribute__((noinline)) int f(int x)
{
	for (int i = 0; i < x; i++)
		x += twice(i) * g(i);
	return x;
}

__attribute__((cold, noinline)) int h(int x)
{
	return f(x) + g(x);
}

int main(int argc, char **argv)
{
	return argc > 3 ? h(argc) : f(argc);
}
`,
	"sub/inline.h": `static inline int twice(int x)
{
	volatile int y = 2 * x;
	return y;
}
`,
	"other.c": `volatile int v;
int g(int x)
{
	v = x;

	return v + 1;
}
`,
}

// sourceDir returns a directory with lineSources.
func sourceDir(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range lineSources {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLinesPeer compares with addr2line at every address of code.
func TestLinesPeer(t *testing.T) {
	gcc := func(args string) string { return "gcc " + args + " main.c other.c" }
	// clang makes a library by way of objects: its driver does not find a linker from here.
	clang := func(args string) string {
		return "clang " + args + " -fPIC -O2 -c main.c; clang " + args + " -fPIC -O2 -c other.c; ld.lld -shared -o a.out main.o other.o"
	}
	builds := []struct{ name, build string }{
		{"version 2", gcc("-gdwarf-2 -gstrict-dwarf -O2")},
		{"version 4", gcc("-gdwarf-4 -O2")},
		{"version 5", gcc("-gdwarf-5 -O2")},
		{"sections of functions", gcc("-gdwarf-5 -O2 -ffunction-sections")},
		{"split", gcc("-gdwarf-5 -gsplit-dwarf -O2")},
		{"link-time optimisation", gcc("-g -flto -O2")},
		{"compressed", gcc("-g -gz=zlib -O2")},
		{"type units", gcc("-g -fdebug-types-section -O2")},
		{"object", "gcc -gdwarf-5 -O2 -c -o a.out main.c"},
		{"object of sections", "gcc -g -O2 -ffunction-sections -c -o a.out main.c"},
		{"clang, version 5", clang("-gdwarf-5")},
		{"clang, compressed", clang("-g -gz=zstd")},
		{"clang for aarch64_be", clang("--target=aarch64_be-linux-gnu -g")},
		{"clang for s390x", clang("--target=s390x-linux-gnu -g")},
	}
	for _, tt := range long.Pick(t, builds[:3], builds) {
		t.Run(tt.name, func(t *testing.T) {
			dir := sourceDir(t)
			addr2line := peer.Tool(t, "sid", "llvm-addr2line-23")
			if strings.HasPrefix(tt.build, "gcc") && tt.name != "split" {
				addr2line = peer.Tool(t, "trixie", "addr2line")
			}
			for command := range strings.SplitSeq(tt.build, "; ") {
				args := strings.Fields(command)
				var cmd *exec.Cmd
				if args[0] == "gcc" {
					cmd = exec.Command(peer.Look(t, "gcc"), args[1:]...)
				} else {
					cmd = peer.Tool(t, "sid", args[0]+"-23")(args[1:]...)
				}
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", cmd, err, out)
				}
			}
			compareLines(t, dir, addr2line)
		})
	}
}

// compareLines compares what findLines says of a.out with what addr2line does. Names can be relative to the directory.
func compareLines(t *testing.T, dir string, addr2line func(...string) *exec.Cmd) {
	path := filepath.Join(dir, "a.out")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := elftest.Parse(t, data)
	compared := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Flags&uint64(elf.SHF_EXECINSTR) == 0 || s.Size == 0 {
			continue
		}
		addrs, got := make([]uint64, s.Size), make([]string, s.Size)
		args := []string{"-e", path}
		if f.IsObject() {
			args = append(args, "-j", s.Name)
		}
		for j := range addrs {
			addrs[j] = s.Base + uint64(j)
			args = append(args, fmt.Sprintf("%#x", s.Addr+uint64(j)))
		}
		err := findLines(f, addrs, func(i int, file string, line int) {
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			got[i] = fmt.Sprintf("%s:%d", filepath.Clean(file), line)
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := addr2line(args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for j, want := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			want, _, _ = strings.Cut(want, " (discriminator")
			if strings.HasPrefix(want, "??") || strings.HasSuffix(want, ":?") || strings.HasSuffix(want, ":0") {
				want = ""
			} else {
				want = filepath.Clean(want)
				compared++
			}
			if got[j] != want {
				t.Errorf("%s+%#x: %q; addr2line says %q", s.Name, j, got[j], want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("%d addresses have a line; want 20", compared)
	}
}

// lineSeeds are sound tables of versions 4 and 5.
func lineSeeds() [][]byte {
	le := binary.LittleEndian
	program := slices.Concat(setAddress(le, 0x1000), []byte{3, 6, 1, 2}, uleb(0x100), []byte{4, 1, 0x20, 8, 9, 0x10, 0},
		setAddress(le, 0x1800), endSequence)
	return [][]byte{lineTable(le, 4, oldNames, program), lineTable(le, 5, newNames, program)}
}

// checkDamaged expects findLines to end without a panic, and its lines to be lines.
func checkDamaged(t *testing.T, line []byte) error {
	f := elftest.Parse(t, withDebug(binary.LittleEndian, map[string][]byte{"line": line, "line_str": []byte("/d\x00")}))
	addrs := []uint64{0x1000, 0x1100, 0x17ff}
	return findLines(f, addrs, func(i int, file string, line int) {
		if i < 0 || i >= len(addrs) || line < 1 || file == "" {
			t.Errorf("%d: %q:%d", i, file, line)
		}
	})
}

// TestDamagedLines changes bytes of line tables.
func TestDamagedLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const all = 2000
	failed := 0
	for i := range all {
		seeds := lineSeeds()
		b := seeds[i%len(seeds)]
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		if checkDamaged(t, b) != nil {
			failed++
		}
	}
	if failed == 0 || failed == all {
		t.Errorf("%d of %d tables give an error", failed, all)
	}
}

func FuzzLines(f *testing.F) {
	for _, b := range lineSeeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _ = checkDamaged(t, b) })
}
