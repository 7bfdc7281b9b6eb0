package elfwrite

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A proof is a checksum of part of the program, stored in its detached file. Builds that set the build-id themselves
// may use the same build-id for different programs.
type proof struct{ Addr, Size, Sum uint64 }

// The note that contains an array of proofs.
const (
	proofNote    = "cfi2sframe\x00"
	proofType    = 1
	proofSection = ".note.cfi2sframe"
	proofText    = 24 // offset of the contents: after a header of 12 bytes and the name padded to 4 bytes
	proofSize    = 24
	maxProofs    = 16
)

// ErrOther is returned by Belongs if the detached file is for a different program.
var ErrOther = errors.New("it belongs to a different program with the same build-id")

// errNoProof is the error for a detached file from another tool.
var errNoProof = errors.New("it has no " + proofSection + ", which identifies its program; detach again")

// proofs returns the proofs of f: checksums of the tables from which rows are derived, if they are loaded and constant,
// otherwise of the code. Reading only the tables is much faster. Without section headers, the table is .eh_frame_hdr,
// which contains the start of each function.
func proofs(f *elffile.File) ([]proof, error) {
	constant := func(addr, size uint64) bool {
		_, ok := f.FileOffset(addr, size)
		return ok && !slices.ContainsFunc(f.Progs, func(h elf.Prog64) bool {
			return elf.ProgFlag(h.Flags)&elf.PF_W != 0 && addr < h.Vaddr+h.Memsz && h.Vaddr < addr+size
		})
	}
	var tables, code []proof
	missing := false
	for _, s := range elffile.Each(f.Sections) {
		if !s.Alloc() || !s.HasBytes() || s.Size == 0 {
			continue
		}
		p := proof{Addr: s.Addr, Size: s.Size}
		switch table := s.Name == ".eh_frame" || strings.HasSuffix(s.Name, ".gopclntab"); {
		case table && constant(s.Addr, s.Size):
			tables = append(tables, p)
		case table:
			missing = true
		case s.IsCode() && constant(s.Addr, s.Size):
			code = append(code, p)
		}
	}
	if h := f.Prog(elf.PT_GNU_EH_FRAME); h != nil && len(f.Sections) == 0 && constant(h.Vaddr, h.Memsz) {
		tables = append(tables, proof{Addr: h.Vaddr, Size: h.Memsz})
	}
	if missing || len(tables) == 0 {
		tables = code
	}
	tables = tables[:min(len(tables), maxProofs)]
	for i := range tables {
		var err error
		if tables[i].Sum, err = tables[i].sum(f); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// sum returns the checksum of the bytes in f. The algorithm is documented in walker/README.md.
func (p *proof) sum(f *elffile.File) (h uint64, err error) {
	off, ok := f.FileOffset(p.Addr, p.Size)
	if !ok {
		return h, fmt.Errorf("no loaded segment contains the %d bytes at %#x", p.Size, p.Addr)
	}
	if err := f.Budget().Spend(scanCost, p.Size); err != nil { // ranges may overlap
		return h, err
	}
	const word = 8
	h = p.Size
	add := func(w uint64) {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	err = f.ReadTable("loaded bytes", off, p.Size, word, func(b []byte, _ uint64) error {
		for ; len(b) >= word; b = b[word:] {
			add(f.Order.Uint64(b))
		}
		return nil
	})
	if rest := p.Size % word; err == nil && rest > 0 {
		last := make([]byte, word)
		err = f.ReadInto("loaded bytes", last[:rest], off+p.Size-rest)
		add(f.Order.Uint64(last))
	}
	return h, err
}

// proofNoteOf returns the note with the proofs of f.
func proofNoteOf(f *elffile.File) ([]byte, error) {
	all, err := proofs(f)
	if err != nil {
		return nil, err
	}
	b := make([]byte, proofText, proofText+proofSize*len(all))
	f.Order.PutUint32(b, uint32(len(proofNote)))
	f.Order.PutUint32(b[4:], uint32(proofSize*len(all)))
	f.Order.PutUint32(b[8:], proofType)
	copy(b[12:], proofNote)
	return binary.Append(b, f.Order, all)
}

// Belongs returns an error unless the detached file d is for f. Their build-ids must be equal.
func Belongs(d, f *elffile.File) error {
	s := d.Section(proofSection)
	if s == nil {
		return errNoProof
	}
	b, err := d.ReadSection(s)
	if err != nil {
		return err
	}
	if len(b) < proofText || len(b) > proofText+proofSize*maxProofs || string(b[12:12+len(proofNote)]) != proofNote ||
		uint64(d.Order.Uint32(b[4:])) != uint64(len(b)-proofText) || len(b[proofText:])%proofSize != 0 {
		return fmt.Errorf("section %s at file offset %#x is not a note from cfi2sframe", proofSection, s.Off)
	}
	for b = b[proofText:]; len(b) > 0; b = b[proofSize:] {
		p := proof{d.Order.Uint64(b), d.Order.Uint64(b[8:]), d.Order.Uint64(b[16:])}
		if sum, err := p.sum(f); err != nil {
			return fmt.Errorf("%w: %w", ErrOther, err)
		} else if sum != p.Sum {
			return fmt.Errorf("%w: the %d bytes at %#x differ", ErrOther, p.Size, p.Addr)
		}
	}
	return nil
}

// DebugOnly reports whether a linked file has section headers for code, but no loaded contents except notes and a
// detached .sframe.
func DebugOnly(f *elffile.File) bool {
	code := false
	for _, s := range elffile.Each(f.Sections) {
		switch {
		case !s.Alloc() || s.Size == 0:
		case !s.HasBytes():
			code = code || s.Flags&uint64(elf.SHF_EXECINSTR) != 0
		case elf.SectionType(s.Type) != elf.SHT_NOTE && s.Type != sframe.SHTGNUSFrame:
			return false
		}
	}
	return code && !f.IsObject()
}
