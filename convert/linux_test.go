package convert

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// refusal returns a part of the reason why Linux rejects the valid section b at addr, or "". It follows the code of the
// patch series (kernel/unwind/sframe.c: sframe_read_header, sframe_validate_section) and does not use package sframe.
func refusal(b []byte, addr uint64, l Linux) string {
	var o binary.ByteOrder = binary.LittleEndian
	if b[0] == 0xde {
		o = binary.BigEndian
	}
	fdes, fres := 28+int(b[7])+int(o.Uint32(b[20:])), 28+int(b[7])+int(o.Uint32(b[24:]))
	n := int(o.Uint32(b[8:]))
	switch {
	case b[2] != 3:
		return "version is "
	case b[3]&4 == 0:
		return "flag 0x4 is clear"
	case b[3]&1 == 0 && l != LinuxModule:
		return "flag 0x1 is clear"
	case b[7] != 0:
		return "auxiliary header"
	case n == 0 || o.Uint32(b[12:]) == 0:
		return "but at least one of each is required"
	}
	type fde struct {
		start    uint64
		flexible bool
	}
	var all []fde
	for at := fdes; at < fdes+16*n; at += 16 {
		attribute := b[fres+int(o.Uint32(b[at+12:])):]
		all = append(all, fde{addr + uint64(at) + o.Uint64(b[at:]), attribute[3] == 1})
	}
	slices.SortStableFunc(all, func(x, y fde) int { return cmp.Compare(x.start, y.start) })
	last := uint64(0)
	for _, d := range all {
		switch {
		case d.start <= last:
			return "is not after the FDE at"
		case d.flexible && l != LinuxUser:
			return "is flexible, which"
		}
		last = d.start
	}
	return ""
}

// TestLinuxVectors applies Linux's rules to the test vectors, some of which are invalid.
func TestLinuxVectors(t *testing.T) {
	reasons := make(map[string]int)
	for _, v := range testfile.Vectors(t) {
		b, addr := v.Decode(t)
		s, err := sframe.Decode(b, addr)
		if err != nil {
			if v.Refuse == nil {
				t.Errorf("%s: %v", v.Name, err)
			}
			continue
		}
		for _, l := range []Linux{LinuxUser, LinuxKernel, LinuxModule} {
			want := refusal(b, addr, l)
			got := l.refuse(s, l != LinuxModule, func(uint64) bool { return true })
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s, %d: %q, want %q", v.Name, l, got, want)
			}
			reasons[want]++
			if want == "" {
				got := l.refuse(s, l != LinuxModule, func(pc uint64) bool { return pc != s.FDE(s.Len()-1).Start })
				if !strings.HasSuffix(got, "is outside the text") {
					t.Errorf("%s, %d, text without the last FDE: %q", v.Name, l, got)
				}
			}
		}
	}
	for _, want := range []string{
		"", "version is ", "flag 0x1 is clear", "auxiliary header", "but at least one of each is required",
		"is not after the FDE at", "is flexible, which",
	} {
		if reasons[want] < 3 {
			t.Errorf("%q has %d vectors", want, reasons[want])
		}
	}
}
