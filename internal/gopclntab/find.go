package gopclntab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"

	"cfi2sframe/elffile"
)

// The magic numbers of the table (internal/abi/symtab.go).
const (
	magic118 = 0xfffffff0 // Go 1.18 and 1.19
	magic120 = 0xfffffff1 // Go 1.20 and later
)

// sections lists the possible names of the section that contains the table.
var sections = [...]string{Name, ".data.rel.ro.gopclntab"}

// signs lists sections that indicate a Go program. In position-independent files, C linkers merge the table into
// another section.
var signs = [...]string{".go.buildinfo", ".note.go.buildid", ".go.module"}

// maxFound bounds the number of tables, and of module data candidates, in a file.
const maxFound = 64

// Find returns the table of a linked file, or nil if the file has none. If the table is malformed, it returns an
// *Error.
func Find(f *elffile.File) (*Table, error) {
	if f.IsObject() || !isGo(f) {
		return nil, nil
	}
	s := &search{file: f}
	if err := s.tables(); err != nil || len(s.found) == 0 {
		return nil, err
	}
	if err := s.modules(); err != nil {
		return nil, err
	}
	var first error
	for _, m := range s.candidates {
		t, err := s.table(m.addr, m.table)
		if t != nil && err == nil {
			t.minor, err = s.release()
			return t, err
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = errorf(0, "no module data points to the table at %#x", s.found[0])
	}
	return nil, first
}

// isGo reports whether the file may contain a table, without searching the whole file.
func isGo(f *elffile.File) bool {
	for i := range f.Sections {
		name := f.Sections[i].Name
		if slices.Contains(sections[:], name) || slices.Contains(signs[:], name) {
			return true
		}
	}
	return len(f.Sections) == 0
}

// A candidate is a word that may start module data (runtime.moduledata): its value is the address of a table.
type candidate struct{ addr, table uint64 }

type search struct {
	file       *elffile.File
	found      []uint64 // addresses of tables
	candidates []candidate
}

// words calls fn with the value and the address of each nonzero aligned word in loaded segments that have all of the
// given flags.
func (s *search) words(flags elf.ProgFlag, fn func(word, addr uint64)) error {
	f := s.file
	for _, p := range elffile.Each(f.Progs) {
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&flags != flags {
			continue
		}
		skip := -p.Vaddr & 7
		if p.Filesz < skip {
			continue
		}
		n := p.Filesz - skip
		if err := f.Budget().Spend(1, n); err != nil {
			return err
		}
		first := p.Off + skip
		err := f.ReadTable(Name, first, n, 8, func(b []byte, off uint64) error {
			for addr := p.Vaddr + skip + (off - first); len(b) >= 8; addr, b = addr+8, b[8:] {
				if w := f.Order.Uint64(b); w != 0 {
					fn(w, addr)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// start decodes the first word of a table (runtime.pcHeader), and reports whether it is valid.
func start(o binary.ByteOrder, w uint64) (magic uint32, quantum byte, ok bool) {
	var b [8]byte
	o.PutUint64(b[:], w)
	magic, quantum = o.Uint32(b[:]), b[6]
	return magic, quantum, (magic == magic118 || magic == magic120) && b[4] == 0 && b[5] == 0 && b[7] == 8 &&
		(quantum == 1 || quantum == 2 || quantum == 4)
}

// tables finds the tables by section name or, failing that, by their first word.
func (s *search) tables() error {
	f := s.file
	for _, name := range sections {
		if sec := f.Section(name); sec != nil && sec.HasBytes() && sec.Size >= headerSize {
			b, err := f.ReadAt("section "+name, sec.Off, 8)
			if err != nil {
				return err
			}
			if _, _, ok := start(f.Order, f.Order.Uint64(b)); !ok {
				return errorf(0, "starts with % x instead of the magic of Go 1.18 or later", b)
			}
			s.found = append(s.found, sec.Addr)
			return nil
		}
	}
	return s.words(0, func(w, addr uint64) {
		if _, _, ok := start(f.Order, w); ok && len(s.found) < maxFound {
			s.found = append(s.found, addr)
		}
	})
}

// modules finds the words whose value, in the file or after relocation, is the address of a table. It searches only
// writable segments, because the runtime writes to module data (gcdatamask). Searching all segments made Find take 11
// ms instead of 2 (stripped cfi2sframe, 15 MB, 2026-11-23).
func (s *search) modules() error {
	add := func(w, addr uint64) {
		if slices.Contains(s.found, w) && len(s.candidates) < maxFound {
			s.candidates = append(s.candidates, candidate{addr, w})
		}
	}
	err := s.relocations(func(addr, addend uint64) { add(addend, addr) })
	if err != nil {
		return err
	}
	lowest, highest := slices.Min(s.found), slices.Max(s.found)
	return s.words(elf.PF_W, func(w, addr uint64) {
		if lowest <= w && w <= highest {
			add(w, addr)
		}
	})
}

// relocations calls fn with the address and addend of each dynamic relocation.
func (s *search) relocations(fn func(addr, addend uint64)) error {
	f := s.file
	h := f.Prog(elf.PT_DYNAMIC)
	if h == nil {
		return nil
	}
	var at, size uint64
	err := f.ReadTable("PT_DYNAMIC", h.Off, h.Filesz, elffile.DynSize, func(b []byte, _ uint64) error {
		for ; len(b) >= elffile.DynSize; b = b[elffile.DynSize:] {
			switch v := f.Order.Uint64(b[elffile.DynValue:]); elf.DynTag(f.Order.Uint64(b)) {
			case elf.DT_RELA:
				at = v
			case elf.DT_RELASZ:
				size = v
			}
		}
		return nil
	})
	off, ok := f.FileOffset(at, size)
	if err != nil || !ok || size == 0 {
		return err
	}
	if err := f.Budget().Spend(1, size); err != nil {
		return err
	}
	return f.ReadTable("DT_RELA", off, size, elffile.RelaSize, func(b []byte, _ uint64) error {
		for ; len(b) >= elffile.RelaSize; b = b[elffile.RelaSize:] {
			fn(f.Order.Uint64(b), f.Order.Uint64(b[elffile.RelaAddend:]))
		}
		return nil
	})
}

// Indexes of words in module data, the same in all releases.
const (
	modTable   = 0
	modRecords = 13 // address, and size in bytes
	modList    = 16 // address, and length
	modMinPC   = 20
	modMaxPC   = 21
	modText    = 22
	modWords   = 23
)

// costTable is the budget cost per byte of the table, from reading to verification.
const costTable = 25

// table returns the table at tableAddr if the module data at addr describes it, and nil otherwise. If the table is
// malformed, it returns an error.
func (s *search) table(addr, tableAddr uint64) (*Table, error) {
	f := s.file
	var m [modWords]uint64
	off, ok := f.FileOffset(addr, 8*modWords)
	if !ok {
		return nil, nil
	}
	b, err := f.ReadAt("module data", off, 8*modWords)
	if err != nil {
		return nil, err
	}
	for i := range m {
		m[i] = f.Order.Uint64(b[8*i:])
	}
	err = s.relocations(func(at, addend uint64) {
		if at-addr < 8*modWords && (at-addr)%8 == 0 {
			m[(at-addr)/8] = addend
		}
	})
	if err != nil {
		return nil, err
	}
	if m[modTable] != tableAddr || m[modRecords] != m[modList] || m[modRecords] < tableAddr+headerSize ||
		m[modMinPC] > m[modMaxPC] || m[modText] > m[modMinPC] {
		return nil, nil
	}
	t := &Table{Addr: tableAddr, Size: m[modRecords] - tableAddr + m[modRecords+1], file: f, text: m[modText]}
	if m[modRecords+1] > f.Size || t.Size > f.Size {
		return nil, errorf(0, "table of %d bytes is larger than the file (%d bytes)", t.Size, f.Size)
	}
	if off, ok = f.FileOffset(tableAddr, t.Size); !ok {
		return nil, errorf(0, "table of %d bytes is not within one segment", t.Size)
	}
	if err := f.Budget().Spend(costTable, t.Size); err != nil {
		return nil, err
	}
	if t.data, err = f.ReadAt(Name, off, t.Size); err != nil {
		return nil, err
	}
	return t, t.header(&m)
}

// header checks the table's header against the module's data.
func (t *Table) header(m *[modWords]uint64) error {
	o := t.file.Order
	magic, quantum, _ := start(o, o.Uint64(t.data))
	t.old, t.quantum = magic == magic118, uint64(quantum)
	word := func(i int) uint64 { return o.Uint64(t.data[8*i:]) }
	// Words: number of functions, number of files, text (unused since Go 1.26), offsets of names, units, files, pctab,
	// records.
	count, names, units, pctab, records := word(1), word(4), word(5), word(7), word(8)
	size := uint64(len(t.data))
	switch {
	case records != m[modRecords]-t.Addr:
		return errorf(64, "functions are at %#x, but at %#x according to module data", records, m[modRecords]-t.Addr)
	case count+1 != m[modList+1]:
		return errorf(8, "%d functions, but %d according to module data", count, m[modList+1]-1)
	case count >= (size-records)/entrySize:
		return errorf(8, "%d functions do not fit in %d bytes", count, size-records)
	case names > units || units > size:
		return errorf(32, "names from %#x to %#x are not within the table of %d bytes", names, units, size)
	case pctab > records:
		return errorf(56, "pctab at %#x is after the functions at %#x", pctab, records)
	}
	t.count, t.names, t.pctab, t.records = int(count), t.data[names:units], t.data[pctab:records], records
	t.exports = bytes.Contains(t.names, []byte("\x00_cgoexp_"))
	first := t.text + uint64(o.Uint32(t.data[records:]))
	last := t.text + uint64(o.Uint32(t.data[records+count*entrySize:]))
	if first != m[modMinPC] || last != m[modMaxPC] {
		return errorf(records, "functions from %#x to %#x, but from %#x to %#x according to module data", first, last,
			m[modMinPC], m[modMaxPC])
	}
	t.code = codeReader{file: t.file, machine: machines[elf.Machine(t.file.Machine)]}
	return nil
}
