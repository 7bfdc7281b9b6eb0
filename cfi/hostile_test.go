package cfi_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// library returns a library with so much code, of whose .eh_frame fill makes the contents.
func library(t *testing.T, size int, fill func(f *elftest.Frames, text uint64)) (*elffile.File, uint64) {
	t.Helper()
	b, err := os.ReadFile("../testdata/bin/amd64/pltlib.so")
	if err != nil {
		t.Fatal(err)
	}
	p := elftest.Patch(t.Fatalf, b)
	text := p.Code(size)
	var f elftest.Frames
	fill(&f, text)
	p.Contents(".eh_frame", f.B)
	file, err := elffile.New(bytes.NewReader(p.B), int64(len(p.B)))
	if err != nil {
		t.Fatal(err)
	}
	return file, text
}

// errorsOf returns what is wrong with the records and instructions of a file.
func errorsOf(t *testing.T, f *elffile.File) (*cfi.Table, []*cfi.Error) {
	t.Helper()
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(table.Errors)
	for fn := range table.Functions() {
		if err := fn.Err(); err != nil {
			e, ok := err.(*cfi.Error)
			if !ok {
				t.Fatalf("%T: %v", err, err)
			}
			all = append(all, e)
		}
	}
	return table, all
}

// long returns a LEB128 number of n bytes: 2^(7n-7), were there no bound.
func long(n int) []byte { return append(bytes.Repeat([]byte{0x80}, n-1), 1) }

// Where things are in records that follow each other: a CIE without augmentation and with the instructions of
// elftest.Sound, the FDE of 16 bytes of code after it, its instructions, and the record after that.
const (
	cieAt   = 0
	fdeAt   = 4 + 4 + 5 + 5 // length, id; version, augmentation, two alignments, RA column; instructions
	codeAt  = fdeAt + 4 + 4 + 8 + 8
	soundAt = codeAt // the end, of an FDE without instructions
)

// TestMalformed has records with something wrong after those of a sound function, which stays described.
func TestMalformed(t *testing.T) {
	const size = 0x1000 // of the code
	le := binary.LittleEndian
	one, initial, of := elftest.OneWith, elftest.InitialWith, elftest.Of
	encoded := func(encoding byte, start uint64) func(*elftest.Frames, uint64) {
		return func(f *elftest.Frames, text uint64) {
			f.FDE(f.CIEOf("zR", 1, []byte{1, encoding}, elftest.Sound), start, 16, 0)
		}
	}
	raw := func(b ...byte) func(*elftest.Frames, uint64) {
		return func(f *elftest.Frames, _ uint64) { f.B = append(f.B, b...) }
	}
	const (
		zR      = fdeAt + 2 + 2  // the FDE after a CIE with zR, its length and encoding
		zRStart = zR + 8         // its first pointer
		zRData  = zR + 8 + 8 + 8 // its augmentation data
	)
	for _, tt := range []struct {
		name   string
		change func(f *elftest.Frames, text uint64)
		off    uint64 // after the sound function
		msg    string
	}{
		{"length 2^64-1", raw(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), 0,
			"record of 18446744073709551615 bytes, but the section has 4 left"},
		{"length 2^63", raw(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0), 0,
			"record of 9223372036854775808 bytes, but the section has 4 left"},
		{"length in 64 bits cut off", raw(0xff, 0xff, 0xff, 0xff, 0, 0, 0), 4,
			"operand of 8 bytes, but 3 bytes are left"},
		{"length reserved", raw(0xf0, 0xff, 0xff, 0xff, 0, 0, 0), 0, "length 0xfffffff0 is reserved"},
		{"length past the end", raw(0x11, 0, 0, 0, 0, 0, 0, 0), 0, "record of 17 bytes, but the section has 4 left"},
		{"length 2^32-17", raw(0xef, 0xff, 0xff, 0xff, 0, 0, 0, 0), 0,
			"record of 4294967279 bytes, but the section has 4 left"},
		{"length of 3 bytes", raw(1, 0, 0), 0, "operand of 4 bytes, but 3 bytes are left"},
		{"record too short for an id", raw(2, 0, 0, 0, 0, 0), 4, "operand of 4 bytes, but 2 bytes are left"},
		{"CIE of nothing", of(func(f *elftest.Frames) int { return f.Record(0, nil) }), 8,
			"record ends before an operand"},
		{"CIE pointer before the section", func(f *elftest.Frames, _ uint64) { f.Record(0x7fffffff, make([]byte, 16)) },
			4,
			"CIE pointer 0x7fffffff reaches before the start of the section"},
		{"CIE pointer to the FDE itself", func(f *elftest.Frames, _ uint64) { f.Record(4, make([]byte, 16)) }, 0,
			"no CIE here, but an FDE says so"},
		{"CIE pointer into a CIE", func(f *elftest.Frames, text uint64) {
			f.FDE(f.CIE(elftest.Sound...)+4, text+16,
				16)
		}, 4, "no CIE here"},
		{"CIE version 2", func(f *elftest.Frames, text uint64) {
			cie := f.CIE(elftest.Sound...)
			f.B[cie+8] = 2
			f.FDE(cie, text+16, 16)
		}, 8, "unknown CIE version 2"},
		{"CIE version 4 with addresses of 4 bytes",
			of(func(f *elftest.Frames) int { return f.Record(0, []byte{4, 0, 4, 0, 1, 0x78, 16}) }), 10,
			"CIE with addresses of 4 and segments of 0 bytes; only 8 and 0 are supported"},
		{"augmentation without end", of(func(f *elftest.Frames) int { return f.Record(0, []byte("\x01zRPLSBG")) }), 9,
			"augmentation string has no end"},
		{"augmentation unknown", of(func(f *elftest.Frames) int { return f.CIEOf("armcc+", 1, nil, elftest.Sound) }), 9,
			`augmentation "armcc+" is unknown and does not start with z`},
		{"augmentation of a megabyte", of(func(f *elftest.Frames) int {
			return f.CIEOf(strings.Repeat("\x01", 1<<20), 1,
				nil, elftest.Sound)
		}), 9,
			"of 1048576 bytes is unknown; at most 64 are accepted"},
		{"augmentation data past the end",
			of(func(f *elftest.Frames) int { return f.CIEOf("zR", 1, []byte{0x7f, 0}, nil) }), 0x10,
			"augmentation data of 127 bytes, but 1 bytes are left"},
		{"augmentation data of 2^63 bytes",
			of(func(f *elftest.Frames) int { return f.CIEOf("zR", 1, append(long(10), 0), nil) }), 0x19,
			"augmentation data of 9223372036854775808 bytes"},
		{"augmentation data too short", of(func(f *elftest.Frames) int {
			return f.CIEOf("zPLR", 1, []byte{1, 0},
				nil)
		}), 0x13,
			"operand of 8 bytes, but 0 bytes are left"},
		{"augmentation data of an FDE past the end", func(f *elftest.Frames, text uint64) {
			f.FDE(f.CIEOf("zR", 1, []byte{1, 0}, elftest.Sound), text+16, 16, 0x20, 0)
		}, zRData + 1, "augmentation data of 32 bytes, but 1 bytes are left"},
		{"pointer of an unknown form", encoded(0x0f, 0), zRStart, "pointer encoding 0x0f has an unknown form"},
		{"pointer of an unknown base", encoded(0x60, 0), zRStart, "pointer encoding 0x60 has an unknown base"},
		{"pointer omitted", encoded(0xff, 0), zRStart, "pointer is omitted (encoding 0xff)"},
		// The error names the end of the pointer.
		{"pointer indirect to nowhere", encoded(0x80, 1<<40), zRStart + 8,
			"indirect pointer at address 0x10000000000, which no loaded segment holds"},
		{"pointer of 100 LEB128 bytes", func(f *elftest.Frames, _ uint64) {
			cie := f.CIEOf("zR", 1, []byte{1, 1}, elftest.Sound)
			f.Record(uint32(len(f.B)+4-cie), append(long(100), 1, 0))
		}, zRStart, "unsigned LEB128 number longer than 64 bits"},
		{"code alignment of 100 LEB128 bytes", of(func(f *elftest.Frames) int {
			return f.Record(0, slices.Concat([]byte{1, 0}, long(100), []byte{0x78, 16}, elftest.Sound))
		}), 0xa, "unsigned LEB128 number longer than 64 bits"},
		{"data alignment -2^63", of(func(f *elftest.Frames) int {
			return f.Record(0, slices.Concat([]byte{1, 0, 1}, bytes.Repeat([]byte{0x80}, 9), []byte{0x7f, 16},
				elftest.Sound))
		}), 0x1a, "offset 1 times the data alignment -9223372036854775808 is too large"},
		{"location changes in a CIE", initial(0x0c, 7, 8, 0x90, 1, 0x41), 13 + 5,
			"initial instructions of a CIE change the location"},
		{"4,097 times remember_state in a CIE", initial(bytes.Repeat([]byte{0x0a}, 4097)...), 13 + 4096,
			"remember_state nests deeper than 4096"},
		{"FDE past the end of the code",
			func(f *elftest.Frames, text uint64) { f.FDE(f.CIE(elftest.Sound...), text+size-8, 1<<20) }, fdeAt,
			"FDE of the 1048576 bytes at 0x"},
		{"FDE around 2^64", func(f *elftest.Frames, text uint64) {
			f.FDE(f.CIE(elftest.Sound...), text+16,
				math.MaxUint64)
		}, fdeAt,
			"FDE of the 18446744073709551615 bytes at 0x"},
		{"FDE cut off", func(f *elftest.Frames, _ uint64) {
			f.CIE(elftest.Sound...)
			f.Record(fdeAt+4, make([]byte, 12))
		}, fdeAt + 16, "operand of 8 bytes, but 4 bytes are left"},

		{"code alignment 2^63", func(f *elftest.Frames, text uint64) {
			cie := f.Record(0, slices.Concat([]byte{1, 0}, long(10), []byte{0x78, 16}, elftest.Sound))
			f.FDE(cie, text+16, 16, 0x42, 0x0e, 16)
		}, codeAt + 9, "location advances past 2^64"},
		{"4,097 times remember_state", one(bytes.Repeat([]byte{0x0a}, 4097)...), codeAt + 4096,
			"remember_state nests deeper than 4096"},
		{"restore_state without remember_state", one(0x0b), codeAt, "restore_state without a remember_state"},
		{"unknown opcode", one(0x3f), codeAt, "unknown opcode 0x3f"},
		{"opcode of another machine", one(0x2d), codeAt, "opcode 0x2d is not defined for this machine"},
		{"expression past the end", one(0x0f, 0x20, 0x77, 8), codeAt + 2,
			"expression of 32 bytes, but 2 bytes are left in the record"},
		{"expression of 2^63 bytes", one(append([]byte{0x0f}, long(10)...)...), codeAt + 11,
			"expression of 9223372036854775808 bytes"},
		{"register of 100 LEB128 bytes", one(append([]byte{0x0d}, long(100)...)...), codeAt + 1,
			"unsigned LEB128 number longer than 64 bits"},
		{"offset of 100 LEB128 bytes", one(append([]byte{0x13}, long(100)...)...), codeAt + 1,
			"signed LEB128 number longer than 64 bits"},
		{"offset 2^63", one(append([]byte{0x0e}, long(10)...)...), codeAt,
			"CFA offset -9223372036854775808 is too large"},
		{"location back", one(append([]byte{0x41, 0x01}, le.AppendUint64(nil, 1)...)...), codeAt + 1,
			"set_loc goes back"},
		{"location cut off", one(0x04, 1, 2), codeAt + 1, "operand of 4 bytes, but 2 bytes are left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, text := library(t, size, func(f *elftest.Frames, text uint64) {
				f.FDE(f.CIE(elftest.Sound...), text, 16)
				if len(f.B) != soundAt {
					t.Fatalf("the sound records have %d bytes", len(f.B))
				}
				tt.change(f, text)
			})
			table, all := errorsOf(t, f)
			if !slices.ContainsFunc(all, func(e *cfi.Error) bool {
				return e.Section == ".eh_frame" && e.Off == soundAt+tt.off && strings.Contains(e.Msg, tt.msg)
			}) {
				t.Errorf("%v; want .eh_frame+%#x: %q", all, soundAt+tt.off, tt.msg)
			}
			if table.Len() == 0 || table.At(0).Begin != text || table.At(0).End != text+16 {
				t.Errorf("the sound function is not described")
			}
		})
	}
}

// TestDropped has FDEs of no code of the file, which are counted.
func TestDropped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(text uint64) uint64
		size  uint64
		want  cfi.Dropped
	}{
		{"of no code", func(text uint64) uint64 { return text + 16 }, 0, cfi.Dropped{ZeroLength: 1}},
		{"at 2^64-1", func(uint64) uint64 { return math.MaxUint64 }, 2, cfi.Dropped{Discarded: 1}},
		{"at 2^64-2", func(uint64) uint64 { return math.MaxUint64 - 1 }, 1, cfi.Dropped{Discarded: 1}},
		{"at 0", func(uint64) uint64 { return 0 }, 16, cfi.Dropped{Discarded: 1}},
		{"not in code", func(uint64) uint64 { return 1 << 40 }, 16, cfi.Dropped{Discarded: 1}},
		{"of code that another one describes", func(text uint64) uint64 { return text }, 16,
			cfi.Dropped{Overlapped: 1}},
	} {
		f, text := library(t, 0x1000, func(f *elftest.Frames, text uint64) {
			cie := f.CIE(elftest.Sound...)
			f.FDE(cie, text, 16)
			f.FDE(cie, tt.start(text), tt.size)
		})
		table, all := errorsOf(t, f)
		if table.Dropped != tt.want || len(all) > 0 || table.Len() != 1 || table.At(0).Begin != text {
			t.Errorf("%s: %+v, errors %v, %d functions; want %+v and one function", tt.name, table.Dropped,
				all, table.Len(), tt.want)
		}
	}
}

// TestErrorsBounded has more malformed records than are kept: all are counted.
func TestErrorsBounded(t *testing.T) {
	const n = 5000
	f, _ := library(t, 0x1000, func(f *elftest.Frames, text uint64) {
		f.FDE(f.CIE(elftest.Sound...), text, 16)
		for range n {
			f.Record(0x7fffffff, make([]byte, 16))
		}
	})
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil || table.NumErrors != n || len(table.Errors) != 1000 || table.Len() != 1 {
		t.Errorf("%v, %d errors, %d of them kept; want %d and 1000", err, table.NumErrors,
			len(table.Errors), n)
	}
}
