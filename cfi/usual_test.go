package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/elffile"
)

// TestUsual reads the call frame information of real files, whole and damaged in random places, with the loops for
// what is usual and without them.
func TestUsual(t *testing.T) {
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	files = append(files, "/bin/true", "/usr/bin/env", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libm.so.6")
	defer func() { shortcuts = true }()
	whole := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		s := f.Section(".eh_frame")
		if s == nil || s.Size == 0 {
			continue
		}
		data, err := f.ReadSection(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds := 300
		if len(data) > 4<<10 {
			rounds = 10
		}
		for round := range rounds {
			r := rand.New(rand.NewPCG(uint64(round), uint64(len(data))))
			part := slices.Clone(data)
			for range min(round, 1+r.IntN(6)) {
				at := r.IntN(len(part))
				switch r.IntN(3) {
				case 0:
					part[at] ^= 1 << r.IntN(8)
				case 1:
					part[at] = byte(r.IntN(256))
				default:
					part = part[:at] // the last record, or another one, is cut
				}
				if len(part) == 0 {
					part = append(part, 0)
				}
			}
			shortcuts = true
			with := says(elf.Machine(f.Machine), f.Order, f, part, s.Addr)
			shortcuts = false
			without := says(elf.Machine(f.Machine), f.Order, f, part, s.Addr)
			if !slices.Equal(with, without) {
				for i := range min(len(with), len(without)) {
					if with[i] != without[i] {
						t.Fatalf("%s, round %d: line %d:\n%s\n%s", path, round, i, with[i], without[i])
					}
				}
				t.Fatalf("%s, round %d: %d and %d lines", path, round, len(with), len(without))
			}
			if whole++; round == 0 && len(with) < 3 && s.Size > 64 {
				t.Errorf("%s says next to nothing: %q", path, with)
			}
		}
	}
	if whole < 5000 {
		t.Errorf("%d sections were read", whole)
	}
}

// TestUsualForms has records that are nearly in the form that compilers write.
func TestUsualForms(t *testing.T) {
	defer func() { shortcuts = true }()
	const most = 1<<64 - 1
	letters := []byte("\x01zR\x00")
	usual := []byte{1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1}
	wide := binary.LittleEndian.AppendUint64([]byte{0x1d}, most) // advance_loc8
	tail := []byte{0x41, 0x0e, 16}
	for name, add := range map[string]func(w *writer, cie func(string, []byte) int, fde func(cie int, start uint64, size uint32, code []byte)){
		"usual": func(w *writer, cie func(string, []byte) int, fde func(int, uint64, uint32, []byte)) {
			c := cie("zR", usual)
			fde(c, textAddr, 16, tail)
			fde(c, textAddr+16, 16, tail)
		},
		"at 0": func(w *writer, cie func(string, []byte) int, fde func(int, uint64, uint32, []byte)) {
			c := cie("zR", usual)
			fde(c, textAddr, 16, tail)
			fde(c, 0, 16, tail)
			fde(c, 0, 8, tail)
		},
		"past 2^64": func(w *writer, cie func(string, []byte) int, fde func(int, uint64, uint32, []byte)) {
			c := cie("zR", usual)
			fde(c, textAddr, 16, slices.Concat(wide, tail, tail))
		},
		"past 2^64 by the alignment": func(w *writer, cie func(string, []byte) int, fde func(int, uint64, uint32, []byte)) {
			c := cie("zR", slices.Concat([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40}, usual[1:]))
			fde(c, textAddr, 16, []byte{0x44, 0x0e, 16})
		},
	} {
		w := &writer{target: amd64}
		add(w, func(_ string, rest []byte) int { return w.cie(letters, rest) }, func(c int, start uint64, size uint32, code []byte) {
			field := frameAddr + uint64(len(w.b)) + 8
			w.fde(c, w.order.AppendUint32(w.order.AppendUint32(nil, uint32(start-field)), size), []byte{0}, code)
		})
		w.b = append(w.b, make([]byte, 16)...) // so that 8 bytes can be read everywhere
		shortcuts = true
		with := says(amd64.machine, amd64.order, nil, w.b, frameAddr)
		shortcuts = false
		without := says(amd64.machine, amd64.order, nil, w.b, frameAddr)
		if !slices.Equal(with, without) || len(with) < 2 {
			t.Errorf("%s:\n%q\n%q", name, with, without)
		}
	}
}

// TestUsualByteOrder has a big-endian FDE whose length and distance from its CIE are the same in both byte orders.
// Its start and size are not.
func TestUsualByteOrder(t *testing.T) {
	defer func() { shortcuts = true }()
	const both = 0x00010100
	w := &writer{target: s390x}
	cie := w.cie([]byte("\x01zR\x00"), []byte{1, 0x78, 14, 1, 0x1b, 0x0c, 15, 0xa0, 1})
	fde := func(start, size uint32, end int) {
		w.fde(cie, w.order.AppendUint32(w.order.AppendUint32(nil, start), size), make([]byte, end-len(w.b)-16))
	}
	fde(0x1000, 0x10, both-4)
	fde(0x10000, 0x100, 2*both)
	shortcuts = true
	with := says(s390x.machine, s390x.order, nil, w.b, frameAddr)
	shortcuts = false
	without := says(s390x.machine, s390x.order, nil, w.b, frameAddr)
	if !slices.Equal(with, without) || len(with) != 5 {
		t.Errorf("\n%q\n%q", with, without)
	}
}

// says returns all that is found in a section at an address in f, or in a file that is not known.
func says(m elf.Machine, order binary.ByteOrder, f *elffile.File, data []byte, addr uint64) []string {
	table := &Table{Machine: m, Order: order}
	table.parse([]*section{{name: ".eh_frame", source: EHFrame, data: data, addr: addr}}, f, nil)
	out := []string{fmt.Sprint(table.Sources, table.Dropped, table.NumErrors, table.NumPrograms())}
	for _, e := range table.Errors {
		out = append(out, e.Error())
	}
	for fn := range table.Functions() {
		out = append(out, fmt.Sprint(fn.Begin, fn.End, fn.Offset(), fn.code, fn.limit, fn.Program(), fn.Signal(), fn.Err()))
		for row := range fn.Rows() {
			out = append(out, fmt.Sprintf("%#x %#x %+v", row.Begin, row.End, *row.Rules))
		}
	}
	return out
}
