package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"reflect"
	"syscall"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// TestReadErrors has each read of a plan fail once. There is no plan then.
func TestReadErrors(t *testing.T) {
	linked := read(t, "plt")
	withOld := add(t, linked, content(100), Options{})
	object := read(t, "plt")
	binary.LittleEndian.PutUint16(object[16:], uint16(elf.ET_REL))
	for i := range 2 { // no program headers
		object[56+i] = 0
	}
	for _, tt := range []struct {
		name string
		file []byte
		plan func(*elffile.File) (*Layout, error)
	}{
		{"add", linked, func(f *elffile.File) (*Layout, error) { return Plan(f, 100, Options{}) }},
		{"replace", withOld, func(f *elffile.File) (*Layout, error) { return Plan(f, 5000, Options{Force: true}) }},
		{"remove", withOld, PlanRemoval},
		{"object", object, func(f *elffile.File) (*Layout, error) {
			return PlanObject(f, 100, Object{Type: elf.SHT_PROGBITS, StartSize: 4}, Options{})
		}},
	} {
		for n := 0; ; n++ {
			r := &failing{bytes.NewReader(tt.file), n}
			f, err := elffile.New(r, int64(len(tt.file)))
			var l *Layout
			if err == nil {
				l, err = tt.plan(f)
			}
			if r.left >= 0 { // there are no more reads
				if err != nil || n < 4 {
					t.Errorf("%s: %d reads, error %v", tt.name, n, err)
				}
				break
			}
			if !errors.Is(err, syscall.EIO) || l != nil {
				t.Errorf("%s: read %d fails, and the error is %v", tt.name, n, err)
			}
			if f != nil && !errors.Is(f.ReadError(), syscall.EIO) {
				t.Errorf("%s: read %d fails, and ReadError is %v", tt.name, n, f.ReadError())
			}
		}
	}
	f := elftest.Parse(t, linked)
	if _, err := f.ReadAt("the end", uint64(len(linked)), 1); err == nil || f.ReadError() != nil {
		t.Errorf("errors %v and %v of what lies outside the file", err, f.ReadError())
	}
	var none *elffile.File
	if none.ReadError() != nil || reflect.TypeOf(none.ReadError()) != nil {
		t.Error("no file cannot be read")
	}
}
