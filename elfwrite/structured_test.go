package elfwrite

import (
	"bytes"
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
)

// FuzzPlan generates a file, adds a section of any size, replaces it with a section of a different size, and removes
// it. All other contents must be unchanged for loaders and readers, and the result must not depend on the intermediate
// steps. A damaged file may be rejected; if it is not and its headers are consistent, the same requirements apply.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 120), uint16(seed*331), uint16(seed*7), uint64(0))
		f.Add(choice.Seeded(seed, 120), uint16(seed*331), uint16(seed*7), generate.Damage(seed))
	}
	// no section headers, no PT_INTERP, and an inserted page
	f.Add(choice.Seeded(164, 286), uint16(331), uint16(7), uint64(0))
	f.Fuzz(func(t *testing.T, choices []byte, size, other uint16, damage uint64) {
		if len(choices) > 4096 {
			return
		}
		b := generate.NewFile(choice.From(choices)).Bytes
		if damage != 0 {
			b = generate.Damaged(b, damage)
		}
		old, err := elffile.New(bytes.NewReader(b), int64(len(b)))
		if err != nil || old.IsObject() {
			return
		}
		// a multiple of 8 bytes, as interpreters require
		section := bytes.Repeat([]byte{0xe2, 0xde, 2, 1}, 4+int(size/8)*2)
		l, err := Plan(old, uint64(len(section)), Options{})
		if err != nil {
			if !errors.Is(err, ErrNoRoom) && damage == 0 {
				t.Errorf("error %v for a valid file", err)
			}
			if !strings.Contains(err.Error(), "0x") && !strings.Contains(err.Error(), "header") && damage == 0 {
				t.Errorf("error %v does not say where", err)
			}
			return
		}
		inHeader := func(s elffile.Section) bool { return s.HasBytes() && s.Size > 0 && s.Off < elffile.HeaderSize }
		if image.Contents(old, old) != nil || slices.ContainsFunc(old.Sections, inHeader) {
			return // its headers contradict each other
		}
		compare := image.Compare
		if damage != 0 {
			compare = image.Contents // segments with invalid alignments are unchanged
		}
		first := write(t, l, b, section)
		if err := placed(elftest.Parse(t, first), l, section); err != nil {
			t.Error(err)
		}
		if err := compare(old, elftest.Parse(t, first)); err != nil {
			t.Errorf("added: %v", err)
		}
		// The layout can be planned before the size is known.
		p := must.Get(NewProgram(old, Options{}))(t)
		if _, err := p.Plan(uint64(other) &^ 7); err != nil {
			t.Fatalf("there is no layout for %d bytes, but for %d: %v", other, len(section), err)
		}
		resized := must.Get(p.Plan(uint64(len(section))))(t)
		if again := write(t, resized, b, section); !bytes.Equal(again, first) {
			t.Error("resized, the layout gives a different file")
		}
		// Replace it with a section of a different size, and back.
		force := Options{Force: true}
		larger := bytes.Repeat([]byte{0xe2, 0xde, 2, 1}, 4+int(other/8)*2)
		l2, err := Plan(elftest.Parse(t, first), uint64(len(larger)), force)
		if err != nil {
			t.Fatalf("replaced: %v", err)
		}
		second := write(t, l2, first, larger)
		if err := compare(old, elftest.Parse(t, second)); err != nil {
			t.Errorf("replaced: %v", err)
		}
		l3, err := Plan(elftest.Parse(t, second), uint64(len(section)), force)
		if err != nil {
			t.Fatalf("replaced again: %v", err)
		}
		if third := write(t, l3, second, section); !bytes.Equal(third, first) {
			t.Error("replaced with a section of a different size, and back, the file differs")
		}
		l4, err := PlanRemoval(elftest.Parse(t, second))
		if err != nil {
			t.Fatalf("removed: %v", err)
		}
		removed := write(t, l4, second, nil)
		plain := elftest.Parse(t, removed)
		if err := image.Contents(old, plain); err != nil {
			t.Errorf("removed: %v", err)
		}
		if x, err := FindSFrame(plain); err != nil || x.Section != 0 || x.Segment >= 0 {
			t.Errorf("removed, there is %+v (%v)", x, err)
		}
		if damage != 0 {
			return
		}
		l5, err := Plan(plain, uint64(len(section)), Options{})
		if err != nil {
			t.Fatalf("added after it was removed: %v", err)
		}
		if again := write(t, l5, removed, section); !bytes.Equal(again, first) {
			t.Errorf("added after it was removed, the file differs: %d bytes, it had %d", len(again), len(first))
		}
	})
}

// onlyDebug returns the debug file of a linked file with section headers: of the loaded sections, only the notes keep
// their contents. Unlike objcopy --only-keep-debug, it leaves unused bytes in the file.
func onlyDebug(t *testing.T, b []byte) []byte {
	f, out := elftest.Parse(t, b), bytes.Clone(b)
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Alloc() && elf.SectionType(s.Type) != elf.SHT_NOTE {
			f.Order.PutUint32(out[f.Shoff+uint64(i)*elffile.SectionSize+elftest.ShType:], uint32(elf.SHT_NOBITS))
		}
	}
	return out
}
