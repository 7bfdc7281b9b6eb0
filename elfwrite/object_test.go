package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// addObject adds an .sframe to an object.
func addObject(t *testing.T, old, section []byte, o Object, opt Options) []byte {
	t.Helper()
	l := must.Get(PlanObject(elftest.Parse(t, old), uint64(len(section)), o, opt))(t)
	return write(t, l, old, section)
}

// start returns a start address in a section of an object.
func start(t *testing.T, b []byte, section int, off, field uint64) emit.Start {
	t.Helper()
	s := elftest.Parse(t, b).Sections[section]
	if s.Base == 0 {
		t.Fatalf("section %d has no address", section)
	}
	return emit.Start{Off: field, Addr: s.Base + off}
}

// rela returns an encoded relocation (ELF gABI, "Relocation").
func rela(order binary.AppendByteOrder, place uint64, sym, typ uint32, addend uint64) []byte {
	b := order.AppendUint64(nil, place)
	b = order.AppendUint64(b, uint64(sym)<<32|uint64(typ))
	return order.AppendUint64(b, addend)
}

// TestObject adds .sframe to an object, and expects the layout that GNU as produces: .sframe and its relocations come
// last, and relocations refer to section symbols. debug/elf reads the result.
func TestObject(t *testing.T) {
	o := elftest.NewObject()
	o.Sections[elftest.ObjStrtab].Data = make([]byte, 8) // so that there is no padding before the names
	cold := o.Code(".text.cold", 32)
	o.Tail = []byte("unknown bytes")
	old := o.Bytes()
	section := content(60)
	sym := uint32(len(o.Symbols)/elffile.SymSize - 1) // the last symbol, that of .text.cold
	want := append(rela(binary.LittleEndian, 28, 1, uint32(elf.R_X86_64_PC32), 48),
		rela(binary.LittleEndian, 48, sym, uint32(elf.R_X86_64_PC32), 4)...)
	obj := Object{Type: elf.SHT_PROGBITS, StartSize: 4, Starts: []emit.Start{
		start(t, old, elftest.ObjText, 48, 28), start(t, old, cold, 4, 48),
	}}
	b := addObject(t, old, section, obj, Options{})
	before := elftest.Parse(t, old)
	if err := image.Compare(before, elftest.Parse(t, b)); err != nil {
		t.Error(err)
	}
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	n := len(before.Sections)
	if len(f.Sections) != n+2 {
		t.Fatalf("%d sections become %d", n, len(f.Sections))
	}
	s, r := f.Sections[n], f.Sections[n+1]
	if got, err := s.Data(); err != nil || !bytes.Equal(got, section) || s.Name != ".sframe" ||
		s.Type != elf.SHT_PROGBITS || s.Flags != elf.SHF_ALLOC || s.Addralign != 8 || s.Offset%8 != 0 {
		t.Errorf("section %d is %+v, error %v", n, s.SectionHeader, err)
	}
	if got, err := r.Data(); err != nil || !bytes.Equal(got, want) || r.Name != ".rela.sframe" ||
		r.Type != elf.SHT_RELA || r.Flags != elf.SHF_INFO_LINK ||
		r.Info != uint32(n) || r.Link != elftest.ObjSymtab || r.Entsize != 24 || r.Offset%8 != 0 ||
		r.Offset < s.Offset+s.Size {
		t.Errorf("section %d is %+v, error %v; its contents are\n% x\nexpected\n% x", n+1, r.SectionHeader, err,
			got, want)
	}
	last := before.Sections[cold]
	if s.Offset != last.Off+last.Size {
		t.Errorf(".sframe is at %#x; want %#x, where the rest ends", s.Offset, last.Off+last.Size)
	}
	if !bytes.HasSuffix(b, o.Tail) {
		t.Error("the bytes at the end are lost")
	}

	// Replace .sframe with a section of the type that later assemblers use, with 8-byte relocations.
	obj.Type, obj.StartSize = elf.SectionType(sframe.SHTGNUSFrame), 8
	if _, err := PlanObject(elftest.Parse(t, b), 60, obj, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("error is %v, want %v", err, ErrExists)
	}
	larger := content(1000)
	direct := addObject(t, old, larger, obj, Options{})
	if !bytes.Equal(addObject(t, b, larger, obj, Options{Force: true}), direct) {
		t.Error("replacing .sframe gives a different file than adding it")
	}
	want = append(rela(binary.LittleEndian, 28, 1, uint32(elf.R_X86_64_PC64), 48),
		rela(binary.LittleEndian, 48, sym, uint32(elf.R_X86_64_PC64), 4)...)
	g := elftest.Parse(t, direct)
	if got, err := g.ReadSection(&g.Sections[n+1]); err != nil || !bytes.Equal(got, want) ||
		g.Sections[n].Type != sframe.SHTGNUSFrame {
		t.Errorf("relocations of 8 bytes are\n% x\nexpected\n% x; error %v", got, want, err)
	}
}

// TestObjectRemoval removes .sframe from an object, which must restore the original object.
func TestObjectRemoval(t *testing.T) {
	o := elftest.NewObject()
	// GNU as places the section names last, directly after the strings.
	o.Sections[elftest.ObjStrtab].Data = make([]byte, 8)
	o.At(0, 0, 0) // the first header is zero (ELF gABI, "Sections")
	o.Sections[0].Addralign = 0
	o.Tail = []byte("unknown bytes")
	old := o.Bytes()
	obj := Object{Type: elf.SHT_PROGBITS, StartSize: 4, Starts: []emit.Start{start(t, old, elftest.ObjText, 0, 28)}}
	if got := remove(t, addObject(t, old, content(60), obj, Options{})); !bytes.Equal(got, old) {
		t.Errorf("%d bytes, which are not the %d of the object before", len(got), len(old))
	}
	if _, err := PlanRemoval(elftest.Parse(t, old)); !errors.Is(err, ErrNone) {
		t.Errorf("error is %v, want %v", err, ErrNone)
	}
}

// withSFrame returns an object with an .sframe that is not last, with or without relocations, and that section's index.
func withSFrame(relocated bool) (*elftest.Object, int) {
	o := elftest.NewObject()
	s := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, content(40))
	if relocated {
		o.Rela(o.RelaOf(".rela.sframe", s), 28, 1, uint32(elf.R_X86_64_PC32), 0)
	}
	o.Add(".comment", elf.SHT_PROGBITS, 0, []byte("kept"))
	return o, s
}

// TestObjectMiddle removes and replaces an .sframe followed by other sections. Their indexes, which are used throughout
// an object, must not change.
func TestObjectMiddle(t *testing.T) {
	for _, relocated := range []bool{true, false} {
		o, at := withSFrame(relocated)
		old := o.Bytes()
		before, after := elftest.Parse(t, old), elftest.Parse(t, remove(t, old))
		if len(after.Sections) != len(before.Sections) || after.Section(".sframe") != nil ||
			after.Section(".rela.sframe") != nil {
			t.Errorf("%d sections become %d", len(before.Sections), len(after.Sections))
		}
		for i := range before.Sections {
			s, n := &before.Sections[i], &after.Sections[i]
			if i == at || relocated && i == at+1 {
				if n.Section64 != (elf.Section64{}) {
					t.Errorf("section %d was %s, and is %+v; want an empty header", i, s.Name, n.Section64)
				}
				continue
			}
			sameSection(t, before, after, i)
		}
		obj := Object{Type: elf.SHT_PROGBITS, StartSize: 4, Starts: []emit.Start{start(t, old, elftest.ObjText, 0, 28)}}
		b := addObject(t, old, content(500), obj, Options{Force: true})
		f := elftest.Parse(t, b)
		got, err := f.ReadSection(&f.Sections[at])
		if err != nil || !bytes.Equal(got, content(500)) || f.Sections[at].Name != ".sframe" {
			t.Errorf("%s has %d bytes, error %v", f.Sections[at].Name, len(got), err)
		}
		index, want := at+1, len(before.Sections)
		if !relocated { // new relocations come last
			index, want = len(before.Sections), want+1
		}
		if r := &f.Sections[index]; r.Name != ".rela.sframe" || r.Info != uint32(at) || len(f.Sections) != want {
			t.Errorf("section %d of %d is %s of section %d", index, len(f.Sections), r.Name, r.Info)
		}
		for i := range before.Sections {
			if i != at && i != index {
				sameSection(t, before, f, i)
			}
		}
	}
}

// sameSection expects a section of an object to be unchanged except for its offset.
func sameSection(t *testing.T, before, after *elffile.File, i int) {
	t.Helper()
	x, y := before.Sections[i], after.Sections[i]
	was, is := x.Section64, y.Section64
	was.Off, is.Off = 0, 0
	if i == before.Shstrndx { // the names differ
		was.Size, is.Size = 0, 0
	}
	if x.Name != y.Name || was != is {
		t.Errorf("section %d (%s) is %+v; it was %+v", i, y.Name, is, was)
	}
	if i == before.Shstrndx || !x.HasBytes() {
		return
	}
	a := must.Get(before.ReadSection(&x))(t)
	if b, err := after.ReadSection(&y); err != nil || !bytes.Equal(a, b) {
		t.Errorf("section %d (%s) has different contents, error %v", i, x.Name, err)
	}
}

// TestObjectNames expects the names of .sframe to remain if other names may share their bytes, and otherwise to be
// removed from the end of the table.
func TestObjectNames(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*elftest.Object)
		stays  bool
	}{
		{"last", func(o *elftest.Object) {}, false},
		{"used by symbols", func(o *elftest.Object) { o.Sections[elftest.ObjSymtab].Link = elftest.ObjNames },
			true},
		{"not last", func(o *elftest.Object) { o.Add(".last", elf.SHT_PROGBITS, 0, nil) }, true},
		{"in another name", func(o *elftest.Object) { o.Add("a.rela.sframe", elf.SHT_PROGBITS, 0, nil) }, true},
	} {
		o := elftest.NewObject()
		s := o.Add(".other", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
		o.Sections[s] = o.Sections[elftest.ObjText]
		r := o.RelaOf(".rela.sframe", s)
		tt.change(o)
		old := o.Bytes()
		// Assemblers store only the name .rela.sframe, whose suffix is the name .sframe.
		f := elftest.Parse(t, old)
		p := elftest.Patch(t.Fatalf, old)
		h := p.Header(s)
		name := f.Sections[r].Section64.Name + uint32(len(".rela"))
		p.Put32(h, name)
		p.Put32(h+elftest.ShType, uint32(elf.SHT_PROGBITS))
		p.Put64(h+elftest.ShFlags, uint64(elf.SHF_ALLOC))
		if got := elftest.Parse(t, p.B).Sections[s].Name; got != ".sframe" {
			t.Fatalf("%s: section %d is %q", tt.name, s, got)
		}
		b := remove(t, p.B)
		if stays := bytes.Contains(b, []byte(".rela.sframe")); stays != tt.stays {
			t.Errorf("%s: the name stays: %t; want the opposite", tt.name, stays)
		}
		for i, got := range elftest.Parse(t, b).Sections {
			if want := f.Sections[i].Name; got.Name != want && (i != s && i != r || got.Name != "") {
				t.Errorf("%s: section %d is %q; want %q", tt.name, i, got.Name, want)
			}
		}
	}
}

// TestObjectAnchors expects relocations to refer to a local symbol: the section symbol, or any other whose value is an
// address.
func TestObjectAnchors(t *testing.T) {
	const other = elftest.ObjNames + 1
	for _, tt := range []struct {
		name   string
		change func(*elftest.Object)
		sym    uint32
		addend uint64
		want   string // error, or ""
	}{
		{"a function", func(o *elftest.Object) { o.Symbol(elf.STB_LOCAL, elf.STT_FUNC, other, 4) }, 2, 8 - 4, ""},
		{"a function after the address", func(o *elftest.Object) { o.Symbol(elf.STB_LOCAL, elf.STT_FUNC, other, 12) },
			2, ^uint64(3), ""},
		{"the first of two", func(o *elftest.Object) {
			o.Symbol(elf.STB_LOCAL, elf.STT_NOTYPE, other, 1)
			o.Symbol(elf.STB_LOCAL, elf.STT_FUNC, other, 2)
		}, 2, 7, ""},
		{"the section, after a function", func(o *elftest.Object) {
			o.Symbol(elf.STB_LOCAL, elf.STT_FUNC, other, 4)
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, other, 0)
		}, 3, 8, ""},
		{"neither thread-local nor a file", func(o *elftest.Object) {
			o.Symbol(elf.STB_LOCAL, elf.STT_TLS, other, 4)
			o.Symbol(elf.STB_LOCAL, elf.STT_FILE, other, 4)
			o.Symbol(elf.STB_LOCAL, elf.STT_OBJECT, other, 6)
		}, 4, 2, ""},
		{"no local symbol", func(o *elftest.Object) { o.Symbol(elf.STB_GLOBAL, elf.STT_FUNC, other, 0) }, 0, 0,
			"section 7 (.text.other) has no local symbol for relocations"},
	} {
		o := elftest.NewObject()
		o.Add(".text.other", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 16))
		tt.change(o)
		old := o.Bytes()
		obj := Object{Type: elf.SHT_PROGBITS, StartSize: 4, Starts: []emit.Start{start(t, old, other, 8, 28)}}
		if tt.want != "" {
			if _, err := PlanObject(elftest.Parse(t, old), 40, obj, Options{}); err == nil || err.Error() != tt.want {
				t.Errorf("%s: error is %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		f := elftest.Parse(t, addObject(t, old, content(40), obj, Options{}))
		want := rela(binary.LittleEndian, 28, tt.sym, uint32(elf.R_X86_64_PC32), tt.addend)
		if got, err := f.ReadSection(f.Section(".rela.sframe")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: relocation % x, error %v; want % x", tt.name, got, err, want)
		}
	}
}

// TestObjectBig converts objects for big-endian machines, which have different relocation types.
func TestObjectBig(t *testing.T) {
	const aarch64Prel32, s390PC32 = 261, 5 // ELF for the Arm 64-bit Architecture; s390x ABI, "Relocation Types"
	for m, typ := range map[elf.Machine]uint32{elf.EM_AARCH64: aarch64Prel32, elf.EM_S390: s390PC32} {
		old := elftest.BigObject(m, typ).Bytes()
		obj := Object{Type: elf.SHT_PROGBITS, StartSize: 4,
			Starts: []emit.Start{start(t, old, elftest.ObjText, 16, 28)}}
		f := elftest.Parse(t, addObject(t, old, content(40), obj, Options{}))
		want := rela(binary.BigEndian, 28, 1, typ, 16)
		if got, err := f.ReadSection(f.Section(".rela.sframe")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: relocation % x, error %v; want % x", m, got, err, want)
		}
	}
}

// TestObjectRefused expects errors for objects to which .sframe cannot be added, or from which it cannot be removed.
func TestObjectRefused(t *testing.T) {
	patch := func(o *elftest.Object, change func(*elftest.Patcher)) []byte {
		p := elftest.Patch(t.Fatalf, o.Bytes())
		change(p)
		return p.B
	}
	plain := func(change func(*elftest.Patcher)) []byte { return patch(elftest.NewObject(), change) }
	relocations := func(relocated bool, name string, typ elf.SectionType, flags elf.SectionFlag) []byte {
		o, s := withSFrame(relocated)
		r := &o.Sections[o.RelaOf(name, s)]
		r.Type, r.Flags = uint32(typ), uint64(flags)
		return o.Bytes()
	}
	twice := func(p *elftest.Patcher) { p.Put32(p.Header(elftest.ObjStrtab)+elftest.ShType, sframe.SHTGNUSFrame) }
	section := func(change func(p *elftest.Patcher)) []byte {
		o, _ := withSFrame(true)
		return patch(o, change)
	}
	sound := elftest.NewObject().Bytes()
	for _, tt := range []struct {
		name string
		b    []byte
		obj  Object
		want string
	}{
		{"no sections", plain(bare), Object{}, "without section headers or names"},
		{"no names", plain(func(p *elftest.Patcher) { p.Put16(elftest.EhShstrndx, 0) }), Object{},
			"without section headers or names"},
		{"program headers", plain(func(p *elftest.Patcher) {
			p.Put64(elftest.EhPhoff, elffile.HeaderSize)
			p.Put16(elftest.EhPhentsize, elffile.ProgSize)
			p.Put16(elftest.EhPhnum, 1)
		}), Object{}, "relocatable object with 1 program headers"},
		{"outside the file", plain(func(p *elftest.Patcher) {
			p.Put64(p.Header(elftest.ObjText)+elftest.ShSize, 1<<20)
		}), Object{}, "section 1 (.text): 1048576 bytes at file offset"},
		{"over the ELF header", plain(func(p *elftest.Patcher) {
			p.Put64(p.Header(elftest.ObjText)+elftest.ShOff, 32)
		}), Object{}, "section 1 (.text) at file offset 0x20 overlaps the ELF header"},
		{"two .sframe", section(twice), Object{}, "are both .sframe"},
		{"the type without the name", plain(twice), Object{}, `section 5 is ".strtab" of type`},
		{"the name without the type", section(func(p *elftest.Patcher) {
			p.Put32(p.Section(".sframe")+elftest.ShType, uint32(elf.SHT_NOTE))
		}), Object{}, `section 7 is ".sframe" of type SHT_NOTE, not .sframe of type SHT_PROGBITS or 0x6ffffff4`},
		{"code", section(func(p *elftest.Patcher) {
			p.Put64(p.Section(".sframe")+elftest.ShFlags, uint64(elf.SHF_ALLOC|elf.SHF_EXECINSTR))
		}), Object{}, "section 7 (.sframe) cannot be replaced: its flags are SHF_ALLOC+SHF_EXECINSTR, not SHF_ALLOC"},
		{"relocations twice", relocations(true, ".rela.again", elf.SHT_RELA, 0), Object{},
			"section 10 (.rela.again) relocates .sframe; only a single section of type SHT_RELA is supported"},
		{"relocations without addends", relocations(false, ".rel.sframe", elf.SHT_REL, 0), Object{},
			"section 9 (.rel.sframe) relocates .sframe"},
		{"loaded relocations", relocations(false, ".rela.sframe", elf.SHT_RELA, elf.SHF_ALLOC), Object{},
			"section 9 (.rela.sframe) relocates .sframe"},
		{"machine", plain(func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_386)) }), Object{},
			"machine EM_386 is not supported"},
		{"size of start addresses", sound, Object{StartSize: 2},
			"machine EM_X86_64: no known pc-relative relocation of 2 bytes"},
		{"a function outside all sections", sound, Object{StartSize: 4, Starts: []emit.Start{{Addr: 0x123}}},
			"function at 0x123 is in no section"},
	} {
		if tt.obj.StartSize == 0 {
			tt.obj.StartSize = 4
		}
		saved := bytes.Clone(tt.b)
		for what, plan := range map[string]func(*elffile.File) (*Layout, error){
			"add":    func(f *elffile.File) (*Layout, error) { return PlanObject(f, 40, tt.obj, Options{Force: true}) },
			"remove": PlanRemoval,
		} {
			f := elftest.Parse(t, tt.b)
			l, err := plan(f)
			want := tt.want
			if at, failed := FindSFrame(f); what == "remove" && failed == nil && at.Section == 0 {
				want = ErrNone.Error() // even if the rest is unsupported
			}
			if err == nil || l != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: error is %v, want %q", tt.name, what, err, want)
			}
		}
		if !bytes.Equal(tt.b, saved) {
			t.Errorf("%s: the file was changed", tt.name)
		}
	}
}

// TestObjectInUse expects an error when removing an .sframe to which a section or a symbol refers or, through its
// section symbol, a relocation or a group (ELF gABI, "Relocation", "Section Groups").
func TestObjectInUse(t *testing.T) {
	const sym = 2 // symbol of .sframe
	for _, tt := range []struct {
		name   string
		change func(o *elftest.Object, s int)
		want   string
	}{
		{"a section", func(o *elftest.Object, s int) { o.Sections[len(o.Sections)-1].Link = uint32(s) },
			"section 7 (.sframe) cannot be removed: section 9 (.comment) refers to it"},
		{"a name", func(o *elftest.Object, s int) { o.Symbol(elf.STB_LOCAL, elf.STT_NOTYPE, uint16(s), 0) },
			"section 7 (.sframe) cannot be removed: a symbol refers to it"},
		{"a global symbol", func(o *elftest.Object, s int) { o.Symbol(elf.STB_GLOBAL, elf.STT_SECTION, uint16(s), 0) },
			"section 7 (.sframe) cannot be removed: a symbol refers to it"},
		{"two symbols", func(o *elftest.Object, s int) {
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
		}, "section 7 (.sframe) cannot be removed: a symbol refers to it"},
		{"a relocation", func(o *elftest.Object, s int) {
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
			r := o.RelaOf(".rela.text", elftest.ObjText)
			o.Rela(r, 0, 1, uint32(elf.R_X86_64_PC32), 0)
			o.Rela(r, 4, sym, uint32(elf.R_X86_64_PC32), 0)
		}, "section 7 (.sframe) cannot be removed: section 10 (.rela.text) refers to its symbol 2"},
		{"a relocation without addend", func(o *elftest.Object, s int) {
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
			r := o.RelaOf(".rel.text", elftest.ObjText)
			o.Sections[r].Type, o.Sections[r].Entsize = uint32(elf.SHT_REL), 16
			for _, sym := range []uint64{1, 1, sym} {
				o.Sections[r].Data = binary.LittleEndian.AppendUint64(o.Sections[r].Data, 0)
				o.Sections[r].Data = binary.LittleEndian.AppendUint64(o.Sections[r].Data,
					sym<<32|uint64(elf.R_X86_64_PC32))
			}
		}, "section 7 (.sframe) cannot be removed: section 10 (.rel.text) refers to its symbol 2"},
		{"a group", func(o *elftest.Object, s int) {
			o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
			g := o.Add(".group", elf.SHT_GROUP, 0, make([]byte, 4))
			o.Sections[g].Link, o.Sections[g].Info = elftest.ObjSymtab, sym
		}, "section 7 (.sframe) cannot be removed: section 10 (.group) refers to its symbol 2"},
	} {
		o, s := withSFrame(true)
		tt.change(o, s)
		if l, err := PlanRemoval(elftest.Parse(t, o.Bytes())); err == nil || l != nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error is %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestBudget exhausts the budget in each scan of a file: tables of relocations and symbols can overlap.
func TestBudget(t *testing.T) {
	parse := func(b []byte) *elffile.File {
		budget := elffile.NewBudget(0)
		must.Do(t, budget.Spend(1, 1_200_000_000))
		return must.Get(elffile.NewIn(budget, bytes.NewReader(b), int64(len(b))))(t)
	}
	o, s := withSFrame(true)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
	o.RelaOf(".rela.text", elftest.ObjText)
	o.Rela(len(o.Sections)-1, 0, 1, uint32(elf.R_X86_64_PC32), 0)
	if _, err := PlanRemoval(parse(o.Bytes())); !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("relocations of an object: error is %v", err)
	}
	if _, err := Plan(parse(read(t, "plt")), 1000, Options{}); !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("relocations of a program: error is %v", err)
	}
	if _, err := PlanDetached(parse(read(t, "plt")), 1000, Options{}); !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("checksums of a program: error is %v", err)
	}
	b := add(t, read(t, "alloca"), content(1000), Options{})
	l := must.Get(PlanRemoval(parse(b)))(t)
	err := l.Write(t.Context(), &buffer{left: 100}, bytes.NewReader(b), nil, nil)
	if !errors.Is(err, elffile.ErrBudget) {
		t.Errorf("symbols: error is %v", err)
	}
}

// TestObjectOwnSymbol removes an .sframe that has a section symbol, as after ld -r. The symbol is cleared, and other
// symbols keep their indexes.
func TestObjectOwnSymbol(t *testing.T) {
	for _, wide := range []bool{false, true} {
		o, s := withSFrame(true)
		for range 16 {
			o.Symbol(elf.STB_LOCAL, elf.STT_NOTYPE, elftest.ObjText, 8)
		}
		sym := o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(s), 0)
		last := o.Symbol(elf.STB_LOCAL, elf.STT_NOTYPE, elftest.ObjText, 4)
		o.Rela(s+1, 32, uint32(sym), uint32(elf.R_X86_64_PC32), 0) // removed as well
		o.Rela(o.RelaOf(".rela.text", elftest.ObjText), 0, uint32(last), uint32(elf.R_X86_64_PC32), 0)
		indexes := 0
		if wide {
			data := make([]byte, 4*(last+1))
			binary.LittleEndian.PutUint32(data[4*sym:], uint32(s))
			binary.LittleEndian.PutUint16(o.Symbols[sym*elffile.SymSize+elffile.SymShndx:], uint16(elf.SHN_XINDEX))
			indexes = o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, data)
			o.Sections[indexes].Link = elftest.ObjSymtab
		}
		old := o.Bytes()
		before, after := elftest.Parse(t, old), elftest.Parse(t, remove(t, old))
		if after.Section(".sframe") != nil || after.Section(".rela.sframe") != nil {
			t.Error(".sframe is still present")
		}
		want := must.Get(before.ReadSection(&before.Sections[elftest.ObjSymtab]))(t)
		clear(want[sym*elffile.SymSize:][:elffile.SymSize])
		if got, err := after.ReadSection(&after.Sections[elftest.ObjSymtab]); err != nil || !bytes.Equal(got, want) {
			t.Errorf("symbols are\n% x, error %v; expected\n% x", got, err, want)
		}
		if wide {
			got, err := after.ReadSection(&after.Sections[indexes])
			if err != nil || !bytes.Equal(got, make([]byte, 4*(last+1))) {
				t.Errorf("section indexes of symbols are % x, error %v", got, err)
			}
		}
		for i := range before.Sections {
			if i != s && i != s+1 && i != elftest.ObjSymtab && i != indexes {
				sameSection(t, before, after, i)
			}
		}
	}
}
