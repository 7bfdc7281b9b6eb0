package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"cfi2sframe/internal/elffile"
)

// Write writes the new file to dst, which is empty, from the old file src and the
// section's contents, which are Size bytes for address Addr.
func (l *Layout) Write(dst, src *os.File, section []byte) error {
	if uint64(len(section)) != l.Size {
		return fmt.Errorf(".sframe has %d bytes, but the layout is for %d", len(section), l.Size)
	}
	for _, c := range l.copies {
		if err := copyRange(dst, src, c); err != nil {
			return err
		}
	}
	for _, z := range l.zeros {
		if err := writeAt(dst, make([]byte, z.end-z.begin), z.begin); err != nil {
			return err
		}
	}
	for _, c := range l.moves {
		if err := copyRange(dst, src, c); err != nil {
			return err
		}
	}
	if err := l.symbols(dst); err != nil {
		return err
	}
	for _, p := range l.patches {
		if err := writeAt(dst, p.data, p.off); err != nil {
			return err
		}
	}
	if err := writeAt(dst, section, l.off); err != nil {
		return err
	}
	return l.headers(dst)
}

// copyRange copies a range, inside the kernel where the file systems allow it.
func copyRange(dst, src *os.File, c extent) error {
	if c.n == 0 {
		return nil
	}
	if _, err := src.Seek(int64(c.from), io.SeekStart); err != nil {
		return err
	}
	if _, err := dst.Seek(int64(c.to), io.SeekStart); err != nil {
		return err
	}
	n, err := io.CopyN(dst, src, int64(c.n))
	if err == io.EOF {
		return fmt.Errorf("the input ends %d bytes early; it was changed while it was read", int64(c.n)-n)
	}
	return err
}

func writeAt(dst *os.File, b []byte, off uint64) error {
	_, err := dst.WriteAt(b, int64(off))
	return err
}

// headers writes the ELF header and both header tables.
func (l *Layout) headers(dst *os.File) error {
	h := l.f.Header64
	h.Phnum = uint16(len(l.progs))
	if len(l.sections) > 0 {
		h.Shoff, h.Shnum, h.Shstrndx = l.shoff, uint16(len(l.sections)), uint16(l.shstrndx)
	}
	for _, part := range []struct {
		off  uint64
		data any
	}{{0, &h}, {h.Phoff, l.progs}, {h.Shoff, l.sections}} {
		if binary.Size(part.data) == 0 {
			continue
		}
		var buf bytes.Buffer
		if err := binary.Write(&buf, l.f.Order, part.data); err != nil {
			return err
		}
		if err := writeAt(dst, buf.Bytes(), part.off); err != nil {
			return err
		}
	}
	return nil
}

// symbolChunk is how many symbols are rewritten at a time.
const symbolChunk = 1 << 15

// symbols renumbers the sections of symbols, and moves those whose section moved.
func (l *Layout) symbols(dst *os.File) error {
	if !l.renumbers() {
		return nil
	}
	for i := range l.f.Sections {
		s := &l.f.Sections[i]
		if t := elf.SectionType(s.Type); t != elf.SHT_SYMTAB && t != elf.SHT_DYNSYM {
			continue
		}
		to := l.sections[l.index[i]].Off
		for done := uint64(0); done < s.Size/elffile.SymSize*elffile.SymSize; {
			n := min(s.Size/elffile.SymSize*elffile.SymSize-done, symbolChunk*elffile.SymSize)
			b, err := l.f.ReadAt("section "+s.Name, s.Off+done, n)
			if err != nil {
				return err
			}
			if l.renumber(b) {
				if err := writeAt(dst, b, to+done); err != nil {
					return err
				}
			}
			done += n
		}
	}
	return nil
}

// renumbers reports whether any section has a new index or address.
func (l *Layout) renumbers() bool {
	for i, n := range l.index {
		if uint32(i) != n {
			return true
		}
	}
	return len(l.values) > 0
}

// renumber changes the symbols in b and reports whether that made a difference.
func (l *Layout) renumber(b []byte) bool {
	o, changed := l.f.Order, false
	for ; len(b) >= elffile.SymSize; b = b[elffile.SymSize:] {
		old := uint32(o.Uint16(b[6:]))
		if old == 0 || int(old) >= len(l.index) {
			continue // undefined or reserved
		}
		if n := l.index[old]; n != old {
			o.PutUint16(b[6:], uint16(n))
			changed = true
		}
		if d := l.values[old]; d != 0 {
			o.PutUint64(b[8:], o.Uint64(b[8:])+d)
			changed = true
		}
	}
	return changed
}
