package sframe

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// TestMove moves sections. The result must equal a section encoded for the new address.
func TestMove(t *testing.T) {
	row := []FRE{{0, Row{CFA: sp(8)}}}
	parts := []entry{{FDE{Start: 0x1000, Size: 0x20}, row}, {FDE{Start: 0x2000, Size: 0x10}, row}}
	for _, tt := range []struct {
		version Version
		abi     ABI
		flags   Flags
	}{
		{V1, AMD64Little, FDESorted}, {V2, AMD64Little, FDESorted}, {V2, S390XBig, FDESorted | FDEFuncStartPCRel},
		{V3, AArch64Big, FDESorted | FDEFuncStartPCRel},
	} {
		const from = 0x8000
		for _, to := range []uint64{from, 0x9000, 0x10, 0x7fff_0000} {
			c := codec(t, tt.version, tt.abi)
			data, want := section(t, c, tt.flags, from, parts...), section(t, c, tt.flags, to, parts...)
			if err := Move(data, from, to); err != nil || !bytes.Equal(data, want) {
				t.Errorf("%v to %#x: % x, %v; want % x", tt, to, data, err, want)
			}
		}
		// A 4-byte start address cannot express a distance larger than 2 GiB.
		data := section(t, codec(t, tt.version, tt.abi), tt.flags, from, parts...)
		err := Move(data, from, 1<<40)
		if wide := tt.version == V3; (err == nil) != wide ||
			!wide && !strings.Contains(err.Error(), "FDE 0 starts more than 2 GiB from a section at 0x10000000000") {
			t.Errorf("%v: %v", tt, err)
		}
		if err := Move(data[:len(data)-1], from, math.MaxUint64); err == nil {
			t.Errorf("%v: no error for a truncated section", tt)
		}
	}
}
