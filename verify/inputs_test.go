package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// An order is a byte order.
type order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// A region is a loaded section.
type region struct {
	name  string
	addr  uint64
	code  []byte
	flags elf.SectionFlag // 0 means the flags of a code section
	typ   elf.SectionType // 0 means SHT_PROGBITS
	apart bool            // no segment loads it
}

// image returns the bytes of a file with the given sections.
func image(t *testing.T, kind elf.Type, m elf.Machine, o order, regions []region) []byte {
	t.Helper()
	const ehsize, phsize, shsize = 64, 56, 64
	h := elf.Header64{
		Type: uint16(kind), Machine: uint16(m), Version: 1, Phoff: ehsize, Ehsize: ehsize, Phentsize: phsize,
		Shentsize: shsize,
		Shnum:     uint16(len(regions) + 2), Shstrndx: uint16(len(regions) + 1),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_VERSION], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), 1,
		byte(elf.ELFDATA2LSB)
	if o.Uint16([]byte{0, 1}) == 1 {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	for _, r := range regions {
		if !r.apart {
			h.Phnum++
		}
	}
	names := []byte("\x00.shstrtab\x00")
	var loads []elf.Prog64
	var contents []byte
	sections := []elf.Section64{{}}
	first := uint64(ehsize + phsize*int(h.Phnum))
	for _, r := range regions {
		s := elf.Section64{
			Name: uint32(len(names)), Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
			Addr: r.addr, Off: first + uint64(len(contents)), Size: uint64(len(r.code)), Addralign: 1,
		}
		if r.flags != 0 {
			s.Flags = uint64(r.flags)
		}
		if r.typ != 0 {
			s.Type = uint32(r.typ)
		}
		names = append(append(names, r.name...), 0)
		sections = append(sections, s)
		if !r.apart {
			flags := elf.PF_R | elf.PF_X
			if r.flags&elf.SHF_WRITE != 0 {
				flags = elf.PF_R | elf.PF_W
			}
			loads = append(loads, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: s.Off, Vaddr: s.Addr,
				Filesz: s.Size, Memsz: s.Size})
		}
		contents = append(contents, r.code...)
	}
	sections = append(sections, elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: first + uint64(len(contents)),
		Size: uint64(len(names))})
	h.Shoff = first + uint64(len(contents)+len(names))
	var b bytes.Buffer
	for _, v := range []any{&h, loads, contents, names, sections} {
		must.Do(t, binary.Write(&b, o, v))
	}
	return b.Bytes()
}

func fileOf(t *testing.T, kind elf.Type, m elf.Machine, o order, regions ...region) *elffile.File {
	t.Helper()
	b := image(t, kind, m, o, regions)
	return openImage(t, bytes.NewReader(b), len(b))
}

func openImage(t *testing.T, r io.ReaderAt, size int) *elffile.File {
	t.Helper()
	return must.Get(elffile.New(r, int64(size)))(t)
}

// A function is CFI for a range of code.
type function struct {
	begin, end uint64
	letters    string // augmentation letters after z
	column     byte   // return address column; 0 means the platform's
	bare       bool   // without the CIE's instructions
	code       []byte // instructions of the FDE
}

// A platform is a machine with a byte order.
type platform struct {
	abi     sframe.ABI
	machine elf.Machine
	order   order
	column  byte   // of the return address
	initial []byte // instructions of CIEs: the rules at function entry
}

var (
	amd64   = platform{sframe.AMD64Little, elf.EM_X86_64, binary.LittleEndian, 16, []byte{0x0c, 7, 8, 0x90, 1}}
	aarch64 = platform{sframe.AArch64Little, elf.EM_AARCH64, binary.LittleEndian, 30, []byte{0x0c, 31, 0}}
	s390x   = platform{sframe.S390XBig, elf.EM_S390, binary.BigEndian, 14, []byte{0x0c, 15, 0xa0, 1}}
)

// cfi returns CFI from an .eh_frame section with alignment factors 1 and -8.
func (p platform) cfi(t *testing.T, fns ...function) *cfi.Table {
	t.Helper()
	table := p.parse(t, fns...)
	if table.Len() != len(fns) {
		t.Fatalf("%d functions of %d", table.Len(), len(fns))
	}
	return table
}

// parse is like cfi, but functions may overlap.
func (p platform) parse(t *testing.T, fns ...function) *cfi.Table {
	t.Helper()
	var b []byte
	record := func(id func(at int) int, parts ...[]byte) (at int) {
		at = len(b)
		body := bytes.Join(parts, nil)
		b = p.order.AppendUint32(b, uint32(4+len(body)))
		b = append(p.order.AppendUint32(b, uint32(id(len(b)))), body...)
		return at
	}
	cies := make(map[string]int) // functions with equal CIEs share one, so that equal instructions are the same program
	for _, fn := range fns {
		if fn.column == 0 {
			fn.column = p.column
		}
		initial := p.initial
		if fn.bare {
			initial = nil
		}
		key := fmt.Sprint(fn.letters, fn.column, fn.bare)
		cie, ok := cies[key]
		if !ok {
			cie = record(func(int) int { return 0 }, []byte("\x01z"+fn.letters+"\x00"), []byte{1, 0x78, fn.column, 0},
				initial)
			cies[key] = cie
		}
		span := p.order.AppendUint64(p.order.AppendUint64(nil, fn.begin), fn.end-fn.begin)
		record(func(at int) int { return at - cie }, span, []byte{0}, fn.code)
	}
	table, err := cfi.Parse(p.machine, p.order, cfi.Section{Source: cfi.EHFrame, Data: b})
	if err != nil || len(table.Errors) > 0 {
		t.Fatalf("errors %v, %v", err, table.Errors)
	}
	return table
}

// An fde holds an FDE and its rows.
type fde struct {
	sframe.FDE
	rows []sframe.FRE
}

// sectionAddr is the address of .sframe in all tests.
const sectionAddr = 0x10000000

// encode returns a section.
func (p platform) encode(t *testing.T, v sframe.Version, fdes ...fde) []byte {
	t.Helper()
	return build(t, emit.Options{Version: v, ABI: p.abi}, fdes)
}

// build returns a section with the FDEs.
func build(t *testing.T, opt emit.Options, fdes []fde) []byte {
	t.Helper()
	b := must.Get(emit.NewBuilder(opt))(t)
	for _, d := range fdes {
		must.Get(b.Add(d.FDE, b.Refs(d.rows)))(t)
	}
	return must.Get(emit.Join([]*emit.Builder{b}).Encode(sectionAddr))(t)
}

func decodeSection(t *testing.T, data []byte) *sframe.Section {
	t.Helper()
	return must.Get(sframe.Decode(data, sectionAddr))(t)
}

func (p platform) section(t *testing.T, v sframe.Version, fdes ...fde) *sframe.Section {
	t.Helper()
	return decodeSection(t, p.encode(t, v, fdes...))
}

// at is short for the rule base+offset.
func at(base sframe.Base, offset int32) sframe.Rule { return sframe.Rule{Base: base, Offset: offset} }

// slot returns the rule for a value saved at an address.
func slot(base sframe.Base, offset int32) sframe.Rule {
	return sframe.Rule{Base: base, Offset: offset, Deref: true}
}

// one makes r the only row of an FDE.
func one(r sframe.Row) []sframe.FRE { return []sframe.FRE{{Row: r}} }
