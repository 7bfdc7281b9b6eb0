package elftest

import (
	"bytes"
	"debug/elf"
	"testing"

	"cfi2sframe/elffile"
)

// Parse reads an ELF file in memory.
func Parse(t testing.TB, b []byte) *elffile.File {
	t.Helper()
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Linked returns a file with other notes than its build-id, and with a .gnu_debuglink, if these are not
// nil.
func Linked(t testing.TB, b, notes, link []byte) []byte {
	t.Helper()
	p := Patch(t.Fatalf, b)
	if notes != nil {
		p.Put32(int(p.U64(p.Section(".note.gnu.build-id")+ShOff))+8, 1) // the ABI, by its type
		p.AddSection(".note.other", 0, notes)
		p.Put32(p.Section(".note.other")+ShType, uint32(elf.SHT_NOTE))
	}
	if link != nil {
		p.AddSection(".gnu_debuglink", 0, link)
	}
	return p.B
}
