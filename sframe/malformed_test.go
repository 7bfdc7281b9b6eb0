package sframe

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// validSection returns a valid section: one function of 16 bytes with two rows.
func validSection(t *testing.T, v Version, a ABI) []byte {
	t.Helper()
	flags := FDESorted
	if v == V3 {
		flags |= FDEFuncStartPCRel
	}
	cfa := int32(8)
	if a == S390XBig {
		cfa = 160 // the minimum
	}
	rows := []FRE{{0, Row{CFA: sp(cfa)}}, {4, Row{CFA: sp(cfa + 8)}}}
	return section(t, codec(t, v, a), flags, 0, entry{FDE{Start: 0x1000, Size: 16}, rows})
}

// patch returns a copy of b with the bytes at off replaced.
func patch(b []byte, off int, by string) []byte {
	b = slices.Clone(b)
	copy(b[off:], by)
	return b
}

// TestFields changes one field of a section at a time, at the offsets in the format document. The preamble is 4 bytes
// long, and the header 28. An FDE is 17 bytes long in V1, and 20 in V2. In V3, it is 16 bytes, plus a 5-byte attribute.
func TestFields(t *testing.T) {
	v1, v2, v3 := validSection(t, V1, AMD64Little), validSection(t, V2, AMD64Little), validSection(t, V3, AMD64Little)
	big := validSection(t, V2, S390XBig)
	const fde, fres2, attr3 = 28, 28 + 20, 28 + 16
	large := must.Get(syscall.Mmap(-1, 0, math.MaxUint32+1, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE))(t)
	defer func() { must.Do(t, syscall.Munmap(large)) }()
	copy(large, v2)
	must.Get(Decode(v1, 0))(t)
	for _, tt := range []struct {
		name string
		data []byte
		off  uint64
		want string // "" if the section is valid
	}{
		{"nothing", nil, 0, "section of 0 bytes is shorter than a preamble (4 bytes)"},
		{"half a preamble", v2[:3], 0, "section of 3 bytes is shorter than a preamble (4 bytes)"},
		{"a preamble alone", v2[:4], 0, "section of 4 bytes is shorter than a header (28 bytes)"},
		{"half a header", v2[:27], 0, "section of 27 bytes is shorter than a header (28 bytes)"},
		{"other magic", patch(v2, 0, "\xe2\xdd"), 0, "starts with e2 dd instead of the magic 0xdee2"},
		{"magic of the other byte order", patch(v2, 0, "\xde\xe2"), 0,
			"byte order is BigEndian, but ABI amd64 is LittleEndian"},
		{"big-endian ABI in little-endian", patch(v2, 4, "\x04"), 0,
			"byte order is LittleEndian, but ABI s390x is BigEndian"},
		{"version 0", patch(v2, 2, "\x00"), 2, "unknown version 0"},
		{"version 4", patch(v2, 2, "\x04"), 2, "unknown version 4"},
		{"V1 with errata 1's flag", patch(v1, 3, "\x05"), 3, "flags 0x4 are not defined in SFRAME_VERSION_1"},
		{"V1 with frame pointers", patch(v1, 3, "\x03"), 0, ""},
		{"V2 with frame pointers", patch(v2, 3, "\x03"), 0, ""},
		{"V2 with an unknown flag", patch(v2, 3, "\x09"), 3, "flags 0x8 are not defined in SFRAME_VERSION_2"},
		{"V3 with frame pointers", patch(v3, 3, "\x07"), 3, "flags 0x2 are not defined in SFRAME_VERSION_3"},
		{"V3, section-relative", patch(v3, 3, "\x01"), 3, "flag 0x4 is not set, but SFRAME_VERSION_3 requires it"},
		{"V3 relative to the section, without FDEs", patch(patch(v3, 3, "\x01"), 8, strings.Repeat("\x00", 12)), 0, ""},
		{"ABI 0", patch(v2, 4, "\x00"), 4, "ABI 0 is not defined in SFRAME_VERSION_2"},
		{"ABI 5", patch(v2, 4, "\x05"), 4, "ABI 5 is not defined in SFRAME_VERSION_2"},
		{"s390x in V1", patch(v1, 4, "\x04"), 4, "ABI 4 is not defined in SFRAME_VERSION_1"},

		{"4 GiB less a byte", large[:math.MaxUint32], 0, ""},
		{"4 GiB", large, 0, "section of 4294967296 bytes exceeds 4 GiB"},
		{"no FDEs, after the FREs", patch(v2, 8, strings.Repeat("\x00", 12)+"\x04\x00\x00\x00\x00"), 0, ""},
		{"a repetition size without a PC mask", patch(v2, fde+17, "\x02"), 0, ""},

		{"an FDE too many", patch(v2, 8, "\x02"), 20, "2 FDEs at 0x1c extend past the end of the section (54 bytes)"},
		{"FDEs past the end", patch(v2, 8, "\x03"), 20, "3 FDEs at 0x1c extend past the end of the section (54 bytes)"},
		{"an FRE too many", patch(v2, 12, "\x03"), 12, "header declares 3 FREs, but the FDEs have 2"},
		{"an FRE too few", patch(v2, 12, "\x01"), 12, "header declares 1 FREs, but the FDEs have 2"},
		{"FREs a byte too long", patch(v2, 16, "\x07"), 24,
			"FREs at 0x30 (7 bytes) overlap the FDEs or extend past the end of the section (54 bytes)"},
		{"FDEs a byte later", patch(v2, 20, "\x01"), 24, "FREs at 0x30 (6 bytes) overlap the FDEs"},
		{"FDEs far past the end", patch(v2, 20, "\xff\xff\xff\xff"), 20, "1 FDEs at 0x10000001b extend past"},
		{"FREs a byte earlier", patch(v2, 24, "\x13"), 24, "FREs at 0x2f (6 bytes) overlap the FDEs"},
		{"FREs a byte later", patch(v2, 24, "\x15"), 24, "FREs at 0x31 (6 bytes) overlap the FDEs"},
		{"auxiliary header beyond the end", patch(v2, 7, "\xff"), 20, "1 FDEs at 0x11b extend past"},
		{"bytes after the FREs", append(slices.Clone(v2), 1, 2, 3), 0, ""},

		{"rows at the end of the sub-section", patch(v2, fde+8, "\x06"), fde,
			"2 FREs at offset 0x6 extend past the FRE sub-section of 6 bytes"},
		{"rows after the sub-section", patch(v2, fde+8, "\x07"), fde,
			"FREs at offset 0x7 extend past the FRE sub-section of 6 bytes"},
		{"four rows", patch(patch(v2, 12, "\x04"), fde+12, "\x04"), fde,
			"4 FREs at offset 0x0 extend past the FRE sub-section of 6 bytes"},
		{"four rows in V3", patch(patch(v3, 12, "\x04"), attr3, "\x04"), fde,
			"4 FREs at offset 0x0 extend past the FRE sub-section of 11 bytes"},
		{"an attribute at the end", patch(v3, fde+12, "\x07"), fde,
			"FREs at offset 0x7 extend past the FRE sub-section of 11 bytes"},
		{"an attribute before the end", patch(v3, fde+12, "\x06"), 28 + 16 + 6, "FDE type is 3"},
		{"type 2", patch(v3, attr3+3, "\x02"), attr3, "FDE type is 2, not 0 or 1"},
		{"FRE type 3", patch(v2, fde+16, "\x03"), fde, "FRE type is 3, not 0, 1 or 2"},
		{"FRE type 2 in too few bytes", patch(v2, fde+16, "\x02"), fde,
			"2 FREs at offset 0x0 extend past the FRE sub-section"},
		{"FRE type 1", patch(v2, fde+16, "\x01"), 0, ""},
		{"signal frame in V2", patch(v2, fde+16, "\x80"), fde, "info word 0x80 of an FDE has undefined bits set"},
		{"signal frame in V3", patch(v3, attr3+2, "\x80"), 0, ""},
		{"bit 6", patch(v3, attr3+2, "\x40"), attr3, "info word 0x40 of an FDE has undefined bits set"},
		{"key B", patch(v2, fde+16, "\x20"), 0, ""},
		{"PC mask without a size in V1", patch(v1, fde+16, "\x10"), 0, ""},
		{"PC mask without a size in V2", patch(v2, fde+16, "\x10"), fde, "PC-mask FDE has repetition size 0"},
		{"PC mask without a size in V3", patch(v3, attr3+2, "\x10"), attr3, "PC-mask FDE has repetition size 0"},
		{"PC mask in V2", patch(v2, fde+16, "\x10\x08"), 0, ""},
		{"FDEs in another order", section(t, codec(t, V2, AMD64Little), FDESorted, 0, entry{FDE{Start: 0x1001}, nil},
			entry{FDE{Start: 0x1000}, nil}), fde, "FDEs are not sorted by start address, but the flag is set"},
		{"big-endian", big, 0, ""},
		{"big-endian rows after the sub-section", patch(big, fde+8, "\x00\x00\x00\x07"), fde, "FREs at offset 0x7"},
	} {
		s, err := Decode(tt.data, 0)
		if tt.want == "" {
			if err != nil || s.Len() > 1 {
				t.Errorf("%s: error %v", tt.name, err)
			}
			for _, d := range s.FDEs() {
				if d.RepSize > 0 && !d.PCMask {
					t.Errorf("%s: repetition size %d", tt.name, d.RepSize)
				}
			}
			continue
		}
		ok := false
		opened, err2 := Open(tt.data, 0)
		if err2 == nil {
			_, ok, err2 = opened.Lookup(0x1000)
		}
		whole := strings.HasPrefix(tt.want, "header declares") || strings.HasPrefix(tt.want, "FDEs are not sorted")
		if !whole && (ok || err2 == nil || err2.Error() != err.Error()) {
			t.Errorf("%s: error %v from Open and Lookup, want %v", tt.name, err2, err)
		}
		var e *Error
		if !errors.As(err, &e) || e.Off != tt.off || !strings.HasPrefix(e.Msg, tt.want) {
			t.Errorf("%s: error %v, want one at %#x: %s", tt.name, err, tt.off, tt.want)
		}
	}
}

// TestRowBytes changes one row at a time. An FRE has a start address, an info word and data words.
func TestRowBytes(t *testing.T) {
	v2 := validSection(t, V2, AMD64Little)
	const fres = 28 + 20
	for _, tt := range []struct {
		name string
		data []byte
		good int // valid rows before the invalid row
		off  uint64
		want string
	}{
		{"starts at the end of the function", patch(v2, fres+3, "\x10"), 1, fres + 3,
			"FRE starts at 0x10, outside the function or block of 0x10 bytes"},
		{"same start as the previous row", patch(v2, fres+3, "\x00"), 1, fres + 3, "FREs out of order at 0x0"},
		{"starts at the end of a block", patch(v2, 28+16, "\x10\x04"), 1, fres + 3,
			"FRE starts at 0x4, outside the function or block of 0x4 bytes"},
		{"one byte too long", patch(v2, fres+4, "\x05"), 1, fres + 4, "section ends inside an FRE"},
		{"long", patch(v2, fres+4, "\x4d"), 1, fres + 4, "section ends inside an FRE"},
		{"three words", patch(v2, fres+1, "\x07"), 0, fres + 1, "3 data words of an FRE are invalid"},
	} {
		s, err := Decode(tt.data, 0)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		fres, err := s.FREs(0, nil)
		_, refs, err2 := s.NewReader().Refs(0)
		for _, err := range []error{err, err2} {
			var e *Error
			if !errors.As(err, &e) || e.Off != tt.off || !strings.HasPrefix(e.Msg, tt.want) {
				t.Errorf("%s: error %v, want one at %#x: %s", tt.name, err, tt.off, tt.want)
			}
		}
		if len(fres) != tt.good || len(refs) != tt.good {
			t.Errorf("%s: %d and %d rows, want %d", tt.name, len(fres), len(refs), tt.good)
		}
		var out bytes.Buffer
		if err := s.Dump(&out, nil); err == nil || !strings.Contains(out.String(), "Num FREs: 2") {
			t.Errorf("%s: Dump prints %q, error %v", tt.name, &out, err)
		}
		if e, ok, err := s.Lookup(0x100f); err == nil || ok || e != (Match{}) {
			t.Errorf("%s: Lookup gives %+v, %t, %v", tt.name, e, ok, err)
		}
	}
}
