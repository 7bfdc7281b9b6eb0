package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
)

// TestFrontEmptySegment has a static executable with a segment that has no bytes in the file, and the file offset of
// the head. The page in front belongs to the head.
func TestFrontEmptySegment(t *testing.T) {
	old := read(t, "static")
	i := progIndex(t, elftest.Parse(t, old), elf.PT_GNU_STACK)
	setProg(t, old, i, func(h *elf.Prog64) {
		*h = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Align: 0x1000}
		h.Vaddr, h.Paddr, h.Memsz = 0x500000, 0x500000, 0x100
	})
	before, after := elftest.Parse(t, old), elftest.Parse(t, add(t, old, content(100), Options{}))
	if err := image.Compare(before, after); err != nil {
		t.Error(err)
	}
	if h := after.Progs[i]; h.Vaddr != 0x500000 || h.Filesz != 0 || h.Memsz != 0x100 {
		t.Errorf("the segment without bytes is %+v", h)
	}
}

// TestHeadGrows has a file without section headers whose program headers end 56 bytes before the end of a page. The
// segment that holds them can grow to the next one's first page in memory, whatever space the file has.
func TestHeadGrows(t *testing.T) {
	const num = 71
	le := binary.LittleEndian
	for addr, fits := range map[uint64]bool{0x1000: false, 0x2000: true} {
		h := elf.Header64{
			Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: elffile.HeaderSize,
			Ehsize: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: num,
		}
		copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
		progs := [num]elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Align: 0x1000},
			{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Align: 0x1000, Off: 0x2000, Filesz: 16,
				Memsz: 16},
		}
		progs[1].Vaddr, progs[1].Paddr = addr, addr
		for i := 2; i < num; i++ {
			progs[i].Type = uint32(odd)
		}
		progs[0].Filesz = elffile.HeaderSize + num*elffile.ProgSize
		progs[0].Memsz = progs[0].Filesz
		var b bytes.Buffer
		for _, part := range []any{h, progs, make([]byte, 0x2000-progs[0].Filesz), bytes.Repeat([]byte{0x90}, 16)} {
			if err := binary.Write(&b, le, part); err != nil {
				t.Fatal(err)
			}
		}
		before := elftest.Parse(t, b.Bytes())
		if !fits {
			if _, err := Plan(before, 100, Options{}); !errors.Is(err, ErrNoRoom) {
				t.Errorf("next segment at %#x: error %v, want %v", addr, err, ErrNoRoom)
			}
			continue
		}
		after := elftest.Parse(t, add(t, b.Bytes(), content(100), Options{}))
		if err := image.Compare(before, after); err != nil {
			t.Errorf("next segment at %#x: %v", addr, err)
		}
		if got, want := after.Progs[0].Filesz, progs[0].Filesz+newHeaders*elffile.ProgSize; got != want {
			t.Errorf("next segment at %#x: the first one has %d bytes, want %d", addr, got, want)
		}
	}
}
