package sframe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// FuzzDecode decodes arbitrary bytes as a section.
func FuzzDecode(f *testing.F) {
	// A default and a PC-mask FDE in V2, a flexible FDE in V3, and an FDE with register rules in V2 for s390x.
	for _, s := range []string{
		"\xe2\xde\x02\x01\x03\x00\xf8\x00\x02\x00\x00\x00\x05\x00\x00\x00" +
			"\x12\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00" +
			"\x00\x10\xff\xff\x00\x02\x00\x00\x06\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00" +
			"\x20\x20\xff\xff\x40\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x10\x10\x00\x00" +
			"\x00\x03\x08\x0b\x03\x10\x00\x00\x03\x08\x04\x00\x04\x10\xf0\xff\x01\x00",
		"\xe2\xde\x03\x05\x03\x00\xf8\x00\x01\x00\x00\x00\x02\x00\x00\x00" +
			"\x10\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00" +
			"\x17\xf0\xff\xff\xff\xff\xff\xff\x32\x00\x00\x00\x00\x00\x00\x00" +
			"\x02\x00\x00\x01\x00\x00\x04\x39\x08\x11\x0a\x51\x00\x00\x33\x00",
		"\xde\xe2\x02\x01\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01" +
			"\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x14" +
			"\xff\xff\xf0\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00" +
			"\x00\x07\x00\x23\x21",
	} {
		must.Get(Decode([]byte(s), 0x10000))(f)
		f.Add([]byte(s))
		// The second row repeats the first, so it is cached, but its start is invalid: that of the first, or the end of
		// a block.
		f.Add([]byte(strings.Replace(s, "\x0b\x03\x10", "\x00\x03\x08", 1)))
		f.Add([]byte(strings.Replace(s, "\x0b\x03\x10", "\x10\x03\x08", 1)))
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
			// The second time, the rows are cached.
			for range 2 {
				_, refs, err2 := r.Refs(i)
				var got []FRE
				for _, ref := range refs {
					got = append(got, FRE{ref.Start, r.Rows[ref.Row]})
				}
				if !slices.Equal(got, fres) || fmt.Sprint(err) != fmt.Sprint(err2) {
					t.Fatalf("FDE %d: %v, error %v from FREs; %v, error %v from Refs", i, fres, err, got, err2)
				}
			}
			for j := range fres {
				if err == nil && (fres[j].Start >= limit && limit > 0 || j > 0 && fres[j].Start <= fres[j-1].Start) {
					t.Fatalf("FDE %d of %d bytes: row %d starts at %d", i, limit, j, fres[j].Start)
				}
			}
		}
		if err := s.Dump(io.Discard, nil); (err == nil) != sound {
			t.Fatalf("Dump: error %v; all rows are valid: %t", err, sound)
		}
	})
}
