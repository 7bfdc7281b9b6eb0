package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"

	"cfi2sframe/elffile"
)

// bareSymbols is allSymbols for a file without section headers: dynamic entries locate the symbols, and the hash table
// tells their number.
func (s *scan) bareSymbols() ([]uint64, error) {
	tags, err := dynamicValues(s.f)
	if err != nil {
		return nil, err
	}
	addr, ok := tags[elf.DT_SYMTAB]
	if !ok {
		return nil, nil
	}
	n, err := s.countSymbols(tags)
	if err != nil {
		return nil, err
	}
	off, ok := s.f.FileOffset(addr, n*elffile.SymSize)
	if !ok {
		return nil, fmt.Errorf("DT_SYMTAB leads to %d symbols at address %#x, which no loaded segment holds", n, addr)
	}
	b, err := s.f.ReadAt("DT_SYMTAB", off, n*elffile.SymSize)
	if err != nil {
		return nil, err
	}
	values := make([]uint64, 0, n)
	for ; len(b) >= elffile.SymSize; b = b[elffile.SymSize:] {
		sym := elffile.Symbol{Sym64: elf.Sym64{Info: b[4], Shndx: s.f.Order.Uint16(b[elffile.SymShndx:]),
			Value: s.f.Order.Uint64(b[elffile.SymValue:])}}
		if index := elf.SectionIndex(sym.Shndx); index < elf.SHN_LORESERVE || index == elf.SHN_XINDEX {
			sym.Section = int(sym.Shndx)
		}
		v := s.value(&sym)
		if values = append(values, v); v != noValue && elf.SymType(sym.Info&0xf) != elf.STT_SECTION {
			s.mark(v, v)
		}
	}
	return values, nil
}

// countSymbols returns the number of symbols by the hash tables (ELF gABI, "Hash Table"; in GNU's the last bucket's
// chain ends with the last symbol).
func (s *scan) countSymbols(tags map[elf.DynTag]uint64) (uint64, error) {
	word := func(addr, i uint64) (uint64, error) {
		b := s.loaded(addr+4*i, 4)
		if b == nil {
			return 0, fmt.Errorf("hash table at address %#x: word %d is not in the file", addr, i)
		}
		return uint64(s.f.Order.Uint32(b)), nil
	}
	if addr, ok := tags[elf.DT_HASH]; ok {
		if s.arch.HashWord == 8 { // big-endian: the lower half is second
			return word(addr, 3)
		}
		return word(addr, 1)
	}
	addr, ok := tags[elf.DT_GNU_HASH]
	if !ok {
		return 0, errors.New("no hash table tells the number of symbols")
	}
	var header [3]uint64 // the numbers of buckets, of symbols without hash, and of words of the filter
	for i := range header {
		var err error
		if header[i], err = word(addr, uint64(i)); err != nil {
			return 0, err
		}
	}
	buckets, first := 4+2*header[2], header[1]
	var last uint64
	for i := range header[0] {
		n, err := word(addr, buckets+i)
		if err != nil {
			return 0, err
		}
		last = max(last, n)
	}
	if last < first {
		return first, nil
	}
	for chains := buckets + header[0]; ; last++ {
		n, err := word(addr, chains+last-first)
		if err != nil || n&1 != 0 {
			return last + 1, err
		}
	}
}
