package sframe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// FuzzDecode reads arbitrary bytes as a section.
func FuzzDecode(f *testing.F) {
	// A plain function and a PC-mask one in V2, a flexible one in V3, and one with
	// registers in s390x's V2.
	for _, s := range []string{
		"\xe2\xde\x02\x01\x03\x00\xf8\x00\x02\x00\x00\x00\x05\x00\x00\x00\x12\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00" +
			"\x00\x10\xff\xff\x00\x02\x00\x00\x06\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00" +
			"\x20\x20\xff\xff\x40\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x10\x10\x00\x00" +
			"\x00\x03\x08\x0b\x03\x10\x00\x00\x03\x08\x04\x00\x04\x10\xf0\xff\x01\x00",
		"\xe2\xde\x03\x05\x03\x00\xf8\x00\x01\x00\x00\x00\x02\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00" +
			"\x17\xf0\xff\xff\xff\xff\xff\xff\x32\x00\x00\x00\x00\x00\x00\x00" +
			"\x02\x00\x00\x01\x00\x00\x04\x39\x08\x11\x0a\x51\x00\x00\x33\x00",
		"\xde\xe2\x02\x01\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x14" +
			"\xff\xff\xf0\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00" +
			"\x00\x07\x00\x23\x21",
	} {
		if _, err := Decode([]byte(s), 0x10000); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data, 0x10000)
		if err != nil {
			return
		}
		var fres []FRE
		r := s.NewReader()
		sound := true
		for i, d := range s.FDEs() {
			limit := d.Size
			if d.PCMask && d.RepSize > 0 {
				limit = uint32(d.RepSize)
			}
			var err error
			fres, err = s.FREs(i, fres[:0])
			sound = sound && err == nil
			// The second time the rows are known.
			for range 2 {
				_, refs, err2 := r.Refs(i, nil)
				var got []FRE
				for _, ref := range refs {
					got = append(got, FRE{ref.Start, r.Rows[ref.Row]})
				}
				if !slices.Equal(got, fres) || fmt.Sprint(err) != fmt.Sprint(err2) {
					t.Fatalf("FDE %d: %v, error %v one by one; %v, error %v numbered", i, fres, err, got, err2)
				}
			}
			for j := range fres {
				if err == nil && (fres[j].Start >= limit && limit > 0 || j > 0 && fres[j].Start <= fres[j-1].Start) {
					t.Fatalf("FDE %d of %d bytes: row %d starts at %d", i, limit, j, fres[j].Start)
				}
			}
			for _, pc := range []uint64{d.Start, d.Start + uint64(d.Size)/2, d.End() - 1, d.End()} {
				lookup(t, s, pc)
			}
		}
		if err := s.Dump(io.Discard, nil); (err == nil) != sound {
			t.Fatalf("Dump: error %v; all rows are sound: %t", err, sound)
		}
		sorted := s.Sorted()
		for i := 1; i < sorted.Len(); i++ {
			if sorted.FDE(i-1).Start > sorted.FDE(i).Start {
				t.Fatalf("FDEs %d and %d are not sorted", i-1, i)
			}
		}
	})
}

// lookup compares Find and Lookup with what all FDEs and all FREs say.
func lookup(t *testing.T, s *Section, pc uint64) {
	t.Helper()
	// The last one of those with the highest start.
	want, sorted := -1, s.Sorted()
	for i, d := range sorted.FDEs() {
		if d.Start <= pc {
			want = i
		}
	}
	if want >= 0 {
		if d := sorted.FDE(want); pc-d.Start >= uint64(d.Size) {
			want = -1
		}
	}
	if got := sorted.Find(pc); got != want {
		t.Fatalf("Find(%#x) of the sorted section is %d, want %d", pc, got, want)
	}
	got := s.Find(pc)
	if (got < 0) != (want < 0) || want >= 0 && s.FDE(got) != sorted.FDE(want) {
		t.Fatalf("Find(%#x) is %d, want what is %d when sorted", pc, got, want)
	}
	e, ok, err := s.Lookup(pc)
	if got < 0 {
		if ok || err != nil {
			t.Fatalf("Lookup(%#x) is %v, %t, error %v outside of all FDEs", pc, e, ok, err)
		}
		return
	}
	d := s.FDE(got)
	fres, broken := s.FREs(got, nil)
	if broken != nil || d.PCMask && d.RepSize == 0 {
		return
	}
	at := uint32(pc - d.Start)
	if d.PCMask {
		at = uint32(pc % uint64(d.RepSize))
	}
	var row FRE
	found := false
	for _, f := range fres {
		if f.Start <= at {
			row, found = f, true
		}
	}
	if err != nil || ok != found || ok && (e.FDE != d || e.Start != row.Start || e.Row != s.Complete(row.Row)) {
		t.Fatalf("Lookup(%#x) is %v, %t, error %v; want %v, %t", pc, e, ok, err, row, found)
	}
}

// TestMalformed changes a section in a way that contradicts itself.
func TestMalformed(t *testing.T) {
	const section = "\xe2\xde\x02\x01\x03\x00\xf8\x00\x02\x00\x00\x00\x04\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00" +
		"\x00\x10\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" +
		"\x20\x10\x00\x00\x10\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x03\x08\x04\x03\x10" + "\x00\x03\x08\x05\x03\x10"
	for _, tt := range []struct {
		name string
		off  int
		with byte
		want string // of Decode or of FREs; "" for no error
	}{
		{"nothing", 0, 0xe2, ""},
		{"the first FDE starts behind the second", 29, 0x20, ".sframe+0x1c: FDEs are not sorted by start address"},
		{"rows start at the same place", 71, 0, ".sframe+0x47: FRE starts at 0x0, not after the one before it"},
		{"a row starts behind the function", 71, 0x10,
			".sframe+0x47: FRE starts at 0x10 of a function or block of 0x10 bytes"},
		{"fewer rows than the header says", 40, 1, ".sframe+0xc: header says 4 FREs, but the FDEs have 3"},
		{"more rows than there is room for", 40, 7,
			".sframe+0x1c: 7 FREs at 0x0 of the FRE sub-section do not fit its 12 bytes"},
		{"as many rows as there is room for", 40, 6, ".sframe+0xc: header says 4 FREs, but the FDEs have 8"},
		{"rows behind the end", 36, 13, ".sframe+0x1c: FREs at 0xd of the FRE sub-section do not fit its 12 bytes"},
		{"rows of an unknown type", 44, 3, ".sframe+0x1c: FRE type is 3, not 0, 1 or 2"},
		{"unknown bits", 44, 0x40, ".sframe+0x1c: info word 0x40 of an FDE has undefined bits set"},
		{"blocks of no bytes", 44, 0x10, ".sframe+0x1c: PC-mask FDE has repetition size 0"},
		{"a row that takes the place of the last one", 75, 0x43, ".sframe+0x50: section ends inside an FRE"},
		{"words of 8 bytes", 72, 0x63, ".sframe+0x48: FRE info word 0x63 has data words of size code 3"},
	} {
		data := []byte(section)
		data[tt.off] = tt.with
		s, err := Decode(data, 0)
		for i := 0; err == nil && i < s.Len(); i++ {
			_, err = s.FREs(i, nil)
		}
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: error %v; want %q", tt.name, err, tt.want)
		}
	}
}
