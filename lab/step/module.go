package step

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// sides is the number of answers at a pc: 0 is the CFI, the others are versions of SFrame.
const sides = 1 + int(sframe.V3)

// A mapping is a piece of a file in memory.
type mapping struct {
	lo, hi uint64
	off    uint64 // in the file
	path   string // "" for none
}

// A region is memory with code.
type region struct {
	mapping
	module *module // nil for code that is in no file
	bias   uint64  // from addresses in the file to those in memory
	sites  map[uint64]*site
}

// A site is an instruction.
type site struct {
	insn
	module  *module
	addr    uint64        // in the file
	fn      *cfi.Function // or nil
	answers [sides]*answer

	steps uint64        // of those whose truth is known
	cut   [sides]uint64 // walks of the stack that ended here, and not at its start
}

// begins reports whether a function begins here.
func (s *site) begins() bool { return s.fn != nil && s.fn.Begin == s.addr }

// A module is a file whose code is executed.
type module struct {
	path     string
	file     *elffile.File
	debug    *debugfile.File
	table    *cfi.Table
	sections [sides]*section
	interned map[answer]*answer
	err      error
}

type section struct {
	*sframe.Section
	gaps []report.Gap
}

// module returns the file of a mapping, which is read once, or nil.
func (w *walk) module(m mapping) *module {
	mod, ok := w.modules[m.path]
	if ok {
		return mod
	}
	if m.path == "[vdso]" {
		b := make([]byte, m.hi-m.lo)
		if err := w.mem.read(m.lo, b); err == nil {
			mod = w.load(m.path, bytes.NewReader(b), int64(len(b)))
		}
	} else if strings.HasPrefix(m.path, "/") {
		f, err := os.Open(m.path) // stays open, as contents are read later
		if err == nil {
			var info os.FileInfo
			if info, err = f.Stat(); err == nil {
				mod = w.load(m.path, f, info.Size())
			}
		}
		if err != nil {
			mod = &module{path: m.path, err: err}
		}
	}
	if mod != nil && mod.err != nil {
		w.Errors = append(w.Errors, fmt.Sprintf("%s: %v", m.path, mod.err))
	}
	w.modules[m.path] = mod
	return mod
}

// load reads a file, and makes the sections that it lacks.
func (w *walk) load(path string, contents io.ReaderAt, size int64) *module {
	m := &module{path: path, interned: make(map[answer]*answer)}
	f, err := elffile.New(contents, size)
	if err != nil {
		m.err = err
		return m
	}
	m.file = f
	m.debug, _ = debugfile.Open(debugfile.Auto, path, f)
	if m.table, m.err = cfi.Load(f, cfi.Auto, m.debug.File()); errors.Is(m.err, cfi.ErrNone) {
		m.err = nil
	}
	if s, err := readSection(io.NewSectionReader(contents, 0, size)); err != nil {
		m.err = errors.Join(m.err, err)
	} else if s != nil {
		m.sections[s.Version] = &section{Section: s}
	}
	for _, v := range w.opt.Made {
		if m.table != nil && m.table.Len() > 0 {
			m.err = errors.Join(m.err, m.convert(v, contents, size))
		}
	}
	return m
}

func readSection(contents io.ReaderAt) (*sframe.Section, error) {
	e, err := elf.NewFile(contents)
	if err != nil {
		return nil, err
	}
	s, err := sframe.FromELF(e)
	if errors.Is(err, sframe.ErrNone) {
		return nil, nil
	}
	return s, err
}

// convert makes a section of the file's CFI, if the file has none of that version, and notes its gaps.
func (m *module) convert(v sframe.Version, contents io.ReaderAt, size int64) error {
	var out bytes.Buffer
	opt := convert.Options{Version: v, Force: true, Workers: 1}
	res, err := convert.Convert(context.Background(), io.NewSectionReader(contents, 0, size), size, &out, opt)
	if errors.Is(err, convert.ErrNoCode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("format %d: %w", v, err)
	}
	if m.sections[v] == nil {
		s, err := readSection(bytes.NewReader(out.Bytes()))
		if err != nil || s == nil {
			return err
		}
		m.sections[v] = &section{Section: s}
	}
	m.sections[v].gaps = res.Coverage[0].Gaps
	return nil
}

// mapped notes the code in memory.
func (w *walk) mapped() error {
	maps, err := w.maps()
	if err != nil {
		return err
	}
	old := w.regions
	w.regions, w.near = nil, nil
	for _, m := range maps {
		i := slices.IndexFunc(old, func(r *region) bool { return r.mapping == m })
		if i >= 0 && m.path != "" {
			w.regions = append(w.regions, old[i])
			continue
		}
		w.regions = append(w.regions, &region{mapping: m, sites: make(map[uint64]*site)})
	}
	w.stale = false
	return nil
}

// find returns the region that a pc is in, or nil.
func (w *walk) find(pc uint64) *region {
	for again := w.stale; ; again = true {
		if again && w.mapped() != nil {
			return nil
		}
		for _, r := range w.regions {
			if r.lo <= pc && pc < r.hi {
				return r
			}
		}
		if again {
			return nil
		}
	}
}

// site returns the site of a pc.
func (w *walk) site(pc uint64) *site {
	r := w.near
	if r == nil || pc < r.lo || pc >= r.hi || w.stale {
		if r = w.find(pc); r == nil {
			return w.lost
		}
		w.near = r
	}
	s := r.sites[pc]
	if s == nil {
		s = w.newSite(r, pc)
		r.sites[pc] = s
		w.sites = append(w.sites, s)
	}
	return s
}

// newSite asks all sides about a pc.
func (w *walk) newSite(r *region, pc uint64) *site {
	if len(r.sites) == 0 {
		if r.module = w.module(r.mapping); r.module != nil && r.module.file != nil {
			r.bias = r.lo - r.off
			for _, p := range r.module.file.Progs {
				code := elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0
				if code && r.off < p.Off+p.Filesz && r.off+(r.hi-r.lo) > p.Off {
					r.bias = r.lo - r.off + p.Off - p.Vaddr
				}
			}
		}
	}
	m := r.module
	s := &site{module: m, addr: pc - r.bias}
	code := make([]byte, 16)
	for n := len(code); n > 0 && w.mem.read(pc, code[:n]) != nil; n-- { // it may end at the end of a page
		clear(code)
	}
	s.insn = w.m.classify(code)
	if m == nil || m.file == nil {
		return s
	}
	if m.table != nil {
		s.fn = m.table.Find(s.addr)
		if row, ok := m.table.Lookup(s.addr); ok {
			a := w.m.answerOfCFI(row.Rules)
			a.signal = s.fn.Signal()
			s.answers[0] = m.intern(a)
		}
	}
	for v, sec := range m.sections {
		if sec == nil {
			continue
		}
		row, ok, err := sec.Lookup(s.addr)
		if err != nil {
			w.Errors = append(w.Errors, fmt.Sprintf("%s: %v", m.path, err))
		}
		if ok {
			a := w.m.answerOfSFrame(&row.Row)
			a.signal = row.FDE.Signal
			s.answers[v] = m.intern(a)
		}
	}
	return s
}

// intern returns the answer that stands for all that say the same.
func (m *module) intern(a answer) *answer {
	if p, ok := m.interned[a]; ok {
		return p
	}
	m.interned[a] = &a
	return &a
}

// A place is the name of a function, and where it begins.
type place struct {
	function string
	begin    uint64
}

// places names the functions of sites in this file.
func (m *module) places(sites []*site) map[*site]place {
	code := func(s *site) report.Range {
		if s.fn != nil {
			return report.Range{Begin: s.fn.Begin, End: s.fn.End}
		}
		return report.Range{Begin: s.addr, End: s.addr + 1}
	}
	slices.SortFunc(sites, func(a, b *site) int { return cmp.Compare(code(a).Begin, code(b).Begin) })
	var ranges []report.Range
	for _, s := range sites {
		ranges = append(ranges, code(s))
	}
	out := make(map[*site]place)
	for i, l := range report.Locate(m.file, m.debug.File(), ranges) {
		p := place{l.Function, ranges[i].Begin - l.Offset}
		if sites[i].fn != nil && (p.function == "" || p.function[0] == '.') {
			p = place{fmt.Sprintf("function at %#x", ranges[i].Begin), ranges[i].Begin}
		}
		out[sites[i]] = p
	}
	return out
}
