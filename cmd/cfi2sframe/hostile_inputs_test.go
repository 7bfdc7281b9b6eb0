package main

import (
	"bytes"
	"debug/elf"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
)

// tooMuch is part of the message about an input that takes too much work.
const tooMuch = "too much work for an input of this size"

// TestHostileInputs converts archives whose members would be accepted individually.
func TestHostileInputs(t *testing.T) {
	long.Test(t)
	for _, tt := range []struct {
		name   string
		make   func(t testing.TB) []byte
		args   [][]string
		status []int // of each command
		want   string
	}{
		{"300 objects with compressed CFI", compressedObjects,
			[][]string{toOut, toText}, []int{1, 1}, tooMuch},
		{"PLTs with expressions", pltArchive, [][]string{toOut, toText}, []int{1, 1}, tooMuch},
		{"old sections of many rows", rowsArchive, [][]string{{"-q", "--update", "IN", "-o", "OUT"}}, []int{0}, ""},
		{"small objects", smallObjects, [][]string{toOut, toText}, []int{0, 0}, ""},
		{"a debug file with compressed CFI", framesApart, [][]string{{"--dry-run", "--debug-file", "IN", "IN"}},
			[]int{0}, "verified"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			data := tt.make(t)
			for i, args := range tt.args {
				_, status, out := runBounded(t, data, nil, args...)
				if status != tt.status[i] || i == 0 && !strings.Contains(out, tt.want) {
					t.Errorf("%v: exit status %d; want %d\n%.2000s\nwhich should contain %q", args, status,
						tt.status[i], out, tt.want)
				}
			}
		})
	}
}

// compressedObjects is an archive of objects, each with 11 MiB of .debug_frame.
func compressedObjects(t testing.TB) []byte {
	var f elftest.Frames
	cie := nearCIE(&f)
	for len(f.B) < 1<<20 {
		nearFDE(&f, cie, 16)
	}
	o := elftest.NewObject()
	o.Add(".debug_frame", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, elftest.Compressed(elf.COMPRESS_ZSTD, 11<<20,
		zstdOf(t, bytes.Repeat(f.B[:1<<20], 11))))
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", o.Bytes()), 300))
}

func zstdOf(t testing.TB, b []byte) []byte {
	z := must.Get(zstd.NewWriter(nil))(t)
	return z.EncodeAll(b, nil)
}

// pltArchive contains programs with a 1 MiB PLT, whose CFA depends on the pc.
func pltArchive(t testing.TB) []byte {
	b := describedLibrary(t, func(f *elftest.Frames, text uint64) {
		f.FDE(f.CIE(elftest.Sound...), text, 1<<20, steady...)
	}).B
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", b), 1000))
}

// rowsArchive contains programs with an .sframe whose FDEs share their rows.
func rowsArchive(t testing.TB) []byte {
	section := sharedRows(1, 2, 1<<26, 2)
	section[3] = 1 // FDEs are sorted, so the section is examined
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", libraryWith(section)(t)), 1000))
}

// smallObjects contains as many objects as fit into 10 MB.
func smallObjects(testing.TB) []byte {
	one := elftest.ArMember("one.o/", elftest.NewObject().Bytes())
	return elftest.Ar(bytes.Repeat(one, 9_600_000/len(one)))
}

// framesApart is a program with compressed .debug_frame, like a debug file.
func framesApart(t testing.TB) []byte {
	var f elftest.Frames
	cie := nearCIE(&f)
	for i := 0; len(f.B) < 1<<20; i++ {
		nearFDE(&f, cie, 16, 0x0e, 0x80|byte(i), 0x80|byte(i>>7), byte(i>>14))
	}
	p := elftest.Patch(t.Fatalf, fixture(t, "plt"))
	p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), elftest.Compressed(elf.COMPRESS_ZSTD, 11<<20,
		zstdOf(t, bytes.Repeat(f.B[:1<<20], 11))))
	return p.B
}
