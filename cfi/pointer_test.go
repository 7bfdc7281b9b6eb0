package cfi

import "testing"

// TestBadPointers decodes invalid encodings and unreadable pointers. The offset of an error is that of the pointer, or
// of its end if its target is missing.
func TestBadPointers(t *testing.T) {
	const at = 25 + 8 // offset of the pointer: after the CIE, and the FDE's length and CIE pointer
	for _, tt := range []struct {
		name string
		enc  byte
		data []byte
		off  uint64
		want string
	}{
		{"omitted", 0xff, make([]byte, 16), at, "required pointer is omitted (encoding 0xff)"},
		{"format 5", 0x05, make([]byte, 16), at, "pointer encoding 0x05 has an unknown format"},
		{"format 0xf", 0x1f, make([]byte, 16), at, "pointer encoding 0x1f has an unknown format"},
		{"base 6", 0x6b, make([]byte, 16), at, "pointer encoding 0x6b has an unknown base"},
		{"aligned, with a format", 0x5b, make([]byte, 16), at, "pointer encoding 0x5b has an unknown base"},
		{"truncated", 0x1b, []byte{0, 0}, at, "operand of 4 bytes, but the record has only 2 left"},
		{"no size", 0x1b, []byte{0, 0, 0, 0}, at + 4, "operand of 4 bytes, but the record has only 0 left"},
		{"aligned, truncated in the padding", 0x50, []byte{0}, at,
			"alignment of 7 bytes, but the record has only 1 left"},
		{"aligned, truncated", 0x50, make([]byte, 10), at + 7, "operand of 8 bytes, but the record has only 3 left"},
		{"number not terminated", 0x01, []byte{0x80}, at + 1, "record ends before operand"},
		{"indirect, without a file", 0x80, []byte{0x34, 0x12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, at + 8,
			"indirect pointer at address 0x1234, which is not in a known section"},
		{"indirect and aligned, without a file", 0xd0, make([]byte, 7+16), at + 7 + 8,
			"indirect pointer at address 0x0, which is not in a known section"},
	} {
		w := ehFrame(amd64)
		cie := w.Shared([]byte("\x01zR\x00"), []byte{1, 0x78, 16, 1, tt.enc}, plainCIE[5:10], []byte{0, 0, 0})
		if len(w.B) != at-8 {
			t.Fatalf("the CIE has %d bytes", len(w.B))
		}
		w.Entry(cie, tt.data)
		table := parse(t, w)
		want := Error{".eh_frame", tt.off, tt.want}
		if table.Len() != 0 || len(table.Errors) != 1 || *table.Errors[0] != want {
			t.Errorf("%s: %d functions, errors %v, want %v", tt.name, table.Len(), table.Errors, &want)
		}
	}

	// In a file, no segment contains the address of the pointer.
	w := ehFrame(s390x)
	cie := w.Shared([]byte("\x01zR\x00"), []byte{1, 0x78, 16, 1, 0x80})
	w.Entry(cie, w.Addresses(0x1234, 0x10), []byte{0})
	table, err := Load(tinyELF(t, s390x, ".eh_frame", w.B), EHFrame, nil)
	if err != nil || len(table.Errors) != 1 ||
		table.Errors[0].Msg != "indirect pointer at address 0x1234, which is not in a loaded segment" {
		t.Errorf("%v, error %v", table.Errors, err)
	}
}
