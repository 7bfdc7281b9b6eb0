package dwline_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/dwline"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// file returns an ELF file with nothing but the given sections of debug information.
func file(t *testing.T, sections map[string][]byte) *elffile.File {
	t.Helper()
	b := image(t, binary.LittleEndian, sections)
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// image returns the bytes of such a file, for amd64 or in big-endian order for s390x.
func image(t *testing.T, order binary.ByteOrder, sections map[string][]byte) []byte {
	t.Helper()
	names, data := []byte{0}, make([]byte, elffile.HeaderSize)
	headers := []elf.Section64{{}}
	add := func(name string, b []byte) {
		headers = append(headers, elf.Section64{
			Name: uint32(len(names)), Type: uint32(elf.SHT_PROGBITS), Off: uint64(len(data)), Size: uint64(len(b)),
		})
		names = append(append(names, name...), 0)
		data = append(data, b...)
	}
	for name, b := range sections {
		add(".debug_"+name, b)
	}
	names = append(names, ".shstrtab\x00"...)
	add("", names)
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: uint64(len(data)),
		Shentsize: elffile.SectionSize, Shnum: uint16(len(headers)), Shstrndx: uint16(len(headers) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if order == binary.BigEndian {
		h.Machine, h.Ident[elf.EI_DATA] = uint16(elf.EM_S390), byte(elf.ELFDATA2MSB)
	}
	var tail, head bytes.Buffer
	for w, v := range map[*bytes.Buffer]any{&tail: headers, &head: &h} {
		if err := binary.Write(w, order, v); err != nil {
			t.Fatal(err)
		}
	}
	copy(data, head.Bytes())
	return append(data, tail.Bytes()...)
}

// sized puts the length of 32 bits before a unit.
func sized(parts ...[]byte) []byte {
	b := bytes.Join(parts, nil)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// abbrev is a table with an entry for units with a line table, from 0x1000 to 0x2000.
var abbrev = []byte{1, 0x11, 0, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, 0} // DW_AT_stmt_list, low_pc, high_pc

// compileUnit returns a unit of version 4 by that table, with the line table at an offset.
func compileUnit(line uint32) []byte {
	le := binary.LittleEndian
	b := []byte{4, 0, 0, 0, 0, 0, 8, 1}
	b = le.AppendUint32(b, line)
	b = le.AppendUint64(b, 0x1000)
	return sized(le.AppendUint32(b, 0x1000))
}

// lineTable returns a line table of version 5 with the given directories and files, from the number of
// their fields on, and instructions.
func lineTable(tables, instructions []byte) []byte {
	le := binary.LittleEndian
	rest := append([]byte{1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, tables...)
	b := le.AppendUint32([]byte{5, 0, 8, 0}, uint32(len(rest)))
	return sized(b, rest, instructions)
}

// rows are instructions for a row at 0x1000 and the end at 0x1800.
var rows = []byte{0, 9, 2, 0, 0x10, 0, 0, 0, 0, 0, 0, 1, 2, 0x80, 0x10, 0, 1, 1}

// tables are one directory /d and one file f.
var tables = []byte{1, 1, 0x08, 1, '/', 'd', 0, 2, 1, 0x08, 2, 0x0b, 2, 'f', 0, 0, 'f', 0, 0}

func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// TestHostile has debug information that claims or shares more than there is.
func TestHostile(t *testing.T) {
	for _, tt := range []struct {
		name     string
		sections map[string][]byte
		want     string // in the error, or "" if the line is to be found
	}{
		{"nothing wrong", map[string][]byte{"info": compileUnit(0), "line": lineTable(tables, rows)}, ""},
		{"2^40 directories of no bytes",
			map[string][]byte{"info": compileUnit(0), "line": lineTable(append([]byte{0}, uleb(1<<40)...), rows)},
			"more than 33"},
		{"2^40 files of no bytes", map[string][]byte{"info": compileUnit(0),
			"line": lineTable(append([]byte{0, 0, 0}, uleb(1<<40)...), rows)},
			"more than 33"},
		{"2^63 directories", map[string][]byte{"info": compileUnit(0),
			"line": lineTable(append([]byte{1, 1, 0x08}, uleb(1<<63)...), rows)}, "text without an end"},
		{"units that share a line table", map[string][]byte{
			"info": bytes.Repeat(compileUnit(0), 2000),
			"line": lineTable(tables, append(bytes.Repeat([]byte{4, 1}, 1<<19), rows...)),
		}, "units share so much of the sections"},
		{"sequences over all addresses", map[string][]byte{
			"info": compileUnit(0), "line": lineTable(tables, bytes.Repeat(rows, 20_000)),
		}, "units share so much of the sections"},
		{"a path of 8 KiB", map[string][]byte{"info": compileUnit(0), "line": lineTable(
			append([]byte{1, 1, 0x08, 1, '/', 0, 1, 1, 0x08, 2, 'x', 0},
				append([]byte(strings.Repeat("x", 8192)), 0)...), rows)},
			"text of more than 4096 bytes"},
		{"abbreviations without end", map[string][]byte{
			"info": compileUnit(0), "line": lineTable(tables, rows),
			"abbrev": bytes.Repeat([]byte{2, 0x11, 0, 0, 0}, 100_000),
		}, "bytes where 0 are left"},
		{"units that share abbreviations", map[string][]byte{ // of two units in turn, behind very many others
			"info": bytes.Repeat(append(compileUnit(0), bytes.Replace(compileUnit(0), []byte{8, 1}, []byte{8, 3},
				1)...), 50), "line": lineTable(tables, rows),
			"abbrev": slices.Concat(bytes.Repeat([]byte{2, 0x11, 0, 0, 0}, 100_000), abbrev[:len(abbrev)-1], []byte{3},
				abbrev[1:]),
		}, "units share so much of the sections"},
		{"a unit past the end", map[string][]byte{"info": {0xff, 0xff, 0, 0, 4, 0}}, "unit of 65535 bytes"},
		{"a length of 64 bits", map[string][]byte{"info": append(bytes.Repeat([]byte{0xff}, 12), 4, 0)},
			"unit of 18446744073709551615 bytes"},
		{"line range 0", map[string][]byte{"info": compileUnit(0), "line": bytes.Replace(lineTable(tables, rows),
			[]byte{0xfb, 14, 13}, []byte{0xfb, 0, 13}, 1)}, "line range 0"},
		{"a line table past the end", map[string][]byte{"info": compileUnit(1 << 20), "line": lineTable(tables, rows)},
			"and the section has"},
		{"a form that is not known", map[string][]byte{"info": compileUnit(0), "line": lineTable(tables, rows),
			"abbrev": {1, 0x11, 0, 0x10, 0x77, 0, 0, 0}}, "form 0x77 is not known"},
		{"indirect forms", map[string][]byte{"info": sized([]byte{4, 0, 0, 0, 0, 0, 8, 1, 0x16, 0x16}),
			"abbrev": {1, 0x11, 0, 0x10, 0x16, 0, 0, 0}}, "of an indirect value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "units that share a line table" {
				long.Test(t)
			}
			if tt.sections["abbrev"] == nil {
				tt.sections["abbrev"] = abbrev
			}
			addrs := make([]uint64, 2048)
			for i := range addrs {
				addrs[i] = 0x1000 + uint64(i)
			}
			got, start := "", time.Now()
			err := dwline.Find(file(t, tt.sections), addrs, func(_ int, file string, line int) { got = file })
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("it takes %v", took)
			}
			if tt.want == "" && (err != nil || got != "/d/f") || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestDamaged changes bytes of real debug information: whatever that does, there is an end, and no
// panic.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	for name, text := range source {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		cmd := exec.Command(peer.Look(t, "gcc"), version, "-O2", "-ffunction-sections", "main.c", "other.c")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(filepath.Join(dir, "a.out"))
		if err != nil {
			t.Fatal(err)
		}
		sound, err := elffile.New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		var places []uint64
		for i := range sound.Sections {
			if s := &sound.Sections[i]; strings.HasPrefix(s.Name, ".debug_") {
				for j := range s.Size {
					places = append(places, s.Off+j)
				}
			}
		}
		text := sound.Section(".text")
		addrs := []uint64{text.Addr, text.Addr + text.Size/2, text.Addr + text.Size - 1}
		r := rand.New(rand.NewPCG(1, 2))
		failed := 0
		for range 3000 {
			b := bytes.Clone(data)
			for range 1 + r.IntN(4) {
				b[places[r.IntN(len(places))]] = byte(r.Uint32())
			}
			f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			if dwline.Find(f, addrs, func(i int, file string, line int) {
				if i < 0 || i >= len(addrs) || line < 1 || file == "" {
					t.Errorf("%d: %q:%d", i, file, line)
				}
			}) != nil {
				failed++
			}
		}
		if failed == 0 || failed == 3000 {
			t.Errorf("%s: %d of 3000 files give an error", version, failed)
		}
	}
}
