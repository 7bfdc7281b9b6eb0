package step

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// Options say what to compare.
type Options struct {
	// Made are the versions of sections that are made of each file, in memory, and compared as well; files that
	// have a section of that version keep it.
	Made  []sframe.Version
	Steps uint64 // that are made at most; 0 for all
	CPU   int    // that everything runs on, or -1
	// From is the file of the program, if what comes before its entry point is not followed: what the loader does at first.
	From    string
	Stopped func() bool
}

// A mapping is a piece of a file in memory.
type mapping struct {
	lo, hi uint64
	off    uint64 // in the file
	path   string // "" for none
}

// A region is code in memory.
type region struct {
	lo, hi uint64
	mod    *module // nil for code that is in no file
	bias   uint64
	sites  []uint32 // by pc: index in Walk.sites plus 1, or 0
}

// A site is an instruction.
type site struct {
	insn
	mod     *module
	addr    uint64 // in the file
	fn      int    // the function of the CFI, or -1
	begins  bool   // it begins a function of the CFI
	answers []*answer
	diffs   *Diff

	steps, outer, unknown uint64
}

// A module is a file whose code is executed.
type module struct {
	path     string
	file     *elffile.File
	debug    *debugfile.File
	table    *cfi.Table
	sections []*section // one for each name in Report.Sections, or nil
	interned map[answer]*answer
	names    []symbol
	err      error
}

type section struct {
	*sframe.Section
	own  bool // it is in the file
	gaps []report.Gap
}

type symbol struct {
	addr, end uint64
	name      string
}

// load reads a file, and makes the sections that it lacks.
func (w *Walk) load(path string, contents io.ReaderAt, size int64) *module {
	m := &module{path: path, interned: make(map[answer]*answer), sections: make([]*section, len(w.Sections))}
	f, err := elffile.New(contents, size)
	if err != nil {
		m.err = err
		return m
	}
	m.file = f
	if w.m == nil {
		if w.m, err = machineOf(f); err != nil {
			m.err = err
			return m
		}
	}
	m.debug, _ = debugfile.Open(debugfile.Auto, path, f)
	if m.table, err = cfi.Load(f, cfi.Auto, m.debug.File()); err != nil && !errors.Is(err, cfi.ErrNone) {
		m.err = err
		return m
	}
	if err := w.sectionsOf(m, contents, size); err != nil {
		m.err = err
	}
	return m
}

// sectionsOf reads the section of a file, and makes others.
func (w *Walk) sectionsOf(m *module, contents io.ReaderAt, size int64) error {
	if e, err := elf.NewFile(io.NewSectionReader(contents, 0, size)); err == nil {
		s, err := sframe.FromELF(e)
		if err != nil && !errors.Is(err, sframe.ErrNone) {
			return err
		}
		if s != nil {
			m.sections[w.column(s.Version)] = &section{Section: s, own: true}
		}
	}
	if m.table == nil || m.table.Len() == 0 {
		return nil
	}
	for _, v := range w.opt.Made {
		i := w.column(v)
		var out bytes.Buffer
		opt := convert.Options{Version: v, Force: true, Workers: 1, DryRun: m.sections[i] != nil}
		res, err := convert.Convert(context.Background(), io.NewSectionReader(contents, 0, size), size, &out, opt)
		if errors.Is(err, convert.ErrNoCode) {
			continue
		}
		if err != nil {
			return fmt.Errorf("format %d: %w", v, err)
		}
		if s := m.sections[i]; s != nil {
			s.gaps = res.Coverage[0].Gaps
			continue
		}
		e, err := elf.NewFile(bytes.NewReader(out.Bytes()))
		if err != nil {
			return err
		}
		s, err := sframe.FromELF(e)
		if err != nil {
			return err
		}
		m.sections[i] = &section{Section: s, gaps: res.Coverage[0].Gaps}
	}
	return nil
}

// column returns the index of a version in Report.Sections.
func (w *Walk) column(v sframe.Version) int {
	for i, c := range w.Sections {
		if c.Version == v {
			return i
		}
	}
	return 0
}

// inFile is memory of a process that is as a file.
type inFile struct {
	mem  Memory
	at   uint64
	size int64
}

func (f inFile) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= f.size {
		return 0, io.EOF
	}
	n := min(int64(len(b)), f.size-off)
	if err := f.mem.Read(f.at+uint64(off), b[:n]); err != nil {
		return 0, err
	}
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// module returns the file of a mapping, which is read if it was not.
func (w *Walk) module(m mapping) *module {
	if m.path == "" {
		return nil
	}
	if mod, ok := w.modules[m.path]; ok {
		return mod
	}
	var mod *module
	if m.path == "[vdso]" {
		size := int64(m.hi - m.lo)
		mod = w.load(m.path, inFile{w.mem, m.lo, size}, size)
	} else if strings.HasPrefix(m.path, "/") {
		mod = w.open(m.path)
	}
	w.modules[m.path] = mod
	if mod != nil {
		w.order = append(w.order, mod)
	}
	return mod
}

func (w *Walk) open(path string) *module {
	f, err := os.Open(path)
	if err != nil {
		return &module{path: path, err: err}
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil
	}
	return w.load(path, f, info.Size()) // which stays open
}

// mapped notes what code is in memory.
func (w *Walk) mapped(maps []mapping) {
	old := w.regions
	w.regions, w.near = nil, nil
	for _, m := range maps {
		mod := w.module(m)
		var bias uint64
		if mod != nil && mod.file != nil {
			bias = m.lo - m.off
			if m.path != "[vdso]" {
				for _, p := range mod.file.Progs {
					if elf.ProgType(p.Type) == elf.PT_LOAD && p.Flags&uint32(elf.PF_X) != 0 && m.off < p.Off+p.Filesz && m.off+(m.hi-m.lo) > p.Off {
						bias = m.lo - m.off + p.Off - p.Vaddr
					}
				}
			} else if p := mod.file.Prog(elf.PT_LOAD); p != nil {
				bias = m.lo - p.Vaddr
			}
		}
		r := region{m.lo, m.hi, mod, bias, nil}
		if i := slices.IndexFunc(old, func(o region) bool { return o.lo == r.lo && o.hi == r.hi && o.mod == r.mod }); i >= 0 && mod != nil {
			r.sites = old[i].sites
		} else {
			r.sites = make([]uint32, m.hi-m.lo)
		}
		w.regions = append(w.regions, r)
	}
	sort.Slice(w.regions, func(i, j int) bool { return w.regions[i].lo < w.regions[j].lo })
}

// nowhere is the site of instructions that nothing is known of.
func (w *Walk) nowhere() *site {
	return &site{fn: -1, answers: make([]*answer, 1+len(w.Sections))}
}

// site returns the site of a pc.
func (w *Walk) site(pc uint64) *site {
	r := w.near
	if r == nil || pc < r.lo || pc >= r.hi || w.stale {
		if r = w.find(pc); r == nil {
			return w.lost
		}
		w.near = r
	}
	if i := r.sites[pc-r.lo]; i != 0 {
		return w.sites[i-1]
	}
	s := w.newSite(r, pc)
	r.sites[pc-r.lo] = uint32(len(w.sites))
	return s
}

func (w *Walk) find(pc uint64) *region {
	for again := w.stale; ; again = true {
		if again {
			maps, err := w.remap()
			if err != nil {
				return nil
			}
			w.mapped(maps)
			w.stale = false
		}
		i := sort.Search(len(w.regions), func(i int) bool { return w.regions[i].hi > pc })
		if i < len(w.regions) && w.regions[i].lo <= pc {
			return &w.regions[i]
		}
		if again {
			return nil
		}
	}
}

// newSite asks all sides about a pc.
func (w *Walk) newSite(r *region, pc uint64) *site {
	s := w.nowhere()
	s.mod, s.addr = r.mod, pc-r.bias
	code := make([]byte, 16)
	for n := len(code); n > 0; n-- { // it may end at the end of a page
		if w.mem.Read(pc, code[:n]) == nil {
			break
		}
		clear(code)
	}
	s.insn = w.m.classify(code)
	w.sites = append(w.sites, s)
	m := r.mod
	if m == nil || m.file == nil {
		return s
	}
	if m.table != nil {
		if i := sort.Search(m.table.Len(), func(i int) bool { return m.table.At(i).End > s.addr }); i < m.table.Len() {
			if fn := m.table.At(i); fn.Begin <= s.addr {
				s.fn, s.begins = i, fn.Begin == s.addr
			}
		}
		if row, ok := m.table.Lookup(s.addr); ok {
			s.answers[0] = m.intern(w.m.answerCFI(row.Rules))
		}
	}
	for i, sec := range m.sections {
		if sec == nil {
			continue
		}
		row, ok, err := sec.Lookup(s.addr)
		if err != nil && m.err == nil {
			m.err = err
		}
		if ok {
			s.answers[i+1] = m.intern(w.m.answerSFrame(&row.Row))
		}
	}
	return s
}

// intern returns the answer that stands for all that say the same.
func (m *module) intern(a answer) *answer {
	if a.outermost {
		a = answer{outermost: true}
	}
	if p, ok := m.interned[a]; ok {
		return p
	}
	m.interned[a] = &a
	return &a
}

// function returns the name of the function that an address is in, and where that begins.
func (m *module) function(addr uint64) (string, uint64) {
	if m.names == nil {
		m.names = []symbol{}
		read := func(f *elffile.File, t elf.SectionType) {
			f.Symbols(t, func(table *elffile.Section, sym elffile.Symbol) {
				if typ := elf.ST_TYPE(sym.Info); (typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC || typ == elf.STT_NOTYPE && sym.Section != 0) && sym.Value != 0 {
					if name := f.SymbolName(table, sym.Name); name != "" && name[0] != '$' && name[0] != '.' {
						m.names = append(m.names, symbol{sym.Value, sym.Value + sym.Size, name})
					}
				}
			})
		}
		if d := m.debug.File(); d != nil {
			read(d, elf.SHT_SYMTAB)
		}
		read(m.file, elf.SHT_SYMTAB)
		read(m.file, elf.SHT_DYNSYM)
		sort.SliceStable(m.names, func(i, j int) bool { return m.names[i].addr < m.names[j].addr })
	}
	begin := addr
	if m.table != nil {
		if fn := m.table.Find(addr); fn != nil {
			begin = fn.Begin
		}
	}
	// The largest that it is in, of several for the same place the one with the shortest name.
	best := symbol{}
	i := sort.Search(len(m.names), func(i int) bool { return m.names[i].addr > addr })
	for n := 0; i > 0 && n < 64; n++ {
		i--
		s := m.names[i]
		in := addr < s.end || s.addr == s.end && s.addr >= begin
		if in && (best.name == "" || s.addr == best.addr && better(s.name, best.name)) {
			best = s
		}
	}
	if best.name == "" && begin == addr {
		for _, s := range m.file.Sections {
			if s.Alloc() && s.Addr <= addr && addr < s.Addr+s.Size {
				return s.Name, s.Addr
			}
		}
	}
	if best.name == "" {
		return fmt.Sprintf("function at %#x", begin), begin
	}
	return best.name, best.addr
}

// better reports whether of two names of a function the first one is that to show.
func better(a, b string) bool {
	under := func(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }
	if under(a) != under(b) {
		return under(a) < under(b)
	}
	return len(a) < len(b) || len(a) == len(b) && a < b
}
