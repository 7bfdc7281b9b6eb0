package kit

import (
	"cmp"
	"debug/elf"
	"slices"
)

// Functions are the function symbols of an ELF file, by address.
type Functions []elf.Symbol

// FunctionsOf reads the function symbols of a file; of a stripped file, the exported functions.
func FunctionsOf(f *elf.File) (list Functions) {
	symbols, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(symbols, dynamic...) {
		section, typ := int(s.Section), elf.ST_TYPE(s.Info)
		if section > 0 && section < len(f.Sections) && f.Sections[section].Flags&elf.SHF_EXECINSTR != 0 &&
			(typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC || typ == elf.STT_NOTYPE) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b elf.Symbol) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Size, b.Size), cmp.Compare(b.Name, a.Name))
	})
	return list
}

// At returns the name and start of the function that contains an address, or "".
func (list Functions) At(addr uint64) (name string, begin uint64) {
	n, _ := slices.BinarySearchFunc(list, addr, func(s elf.Symbol, addr uint64) int {
		if s.Value <= addr {
			return -1
		}
		return 1
	})
	if n == 0 || list[n-1].Size > 0 && addr-list[n-1].Value >= list[n-1].Size {
		return "", 0
	}
	return list[n-1].Name, list[n-1].Value
}
