package step

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// sides is the number of answers at a pc: index 0 is the CFI, the others are the versions of SFrame.
const sides = 1 + int(sframe.V3)

// A mapping is a part of a file mapped into memory.
type mapping struct {
	lo, hi uint64
	off    uint64 // in the file
	path   string // "" for none
}

// A region is a range of memory with code.
type region struct {
	mapping
	module *module // nil for code in anonymous memory
	bias   uint64  // added to addresses in the file
	sites  map[uint64]*site
}

// A site holds an instruction, and the answers of the CFI and each version of SFrame for it.
type site struct {
	insn
	module  *module
	addr    uint64        // in the file
	fn      *cfi.Function // or nil
	answers [sides]*answer
	steps   uint64 // for which the true caller is known
}

// isEntry reports whether a function starts at the instruction.
func (s *site) isEntry() bool { return s.fn != nil && s.fn.Begin == s.addr }

// symbol returns the name and the start of the function.
func (s *site) symbol() (name string, begin uint64) {
	name, begin = s.module.names.At(s.addr)
	switch {
	case s.fn != nil && (name == "" || begin < s.fn.Begin):
		return fmt.Sprintf("function at %#x", s.fn.Begin), s.fn.Begin
	case name == "":
		return "code without a name", s.addr
	}
	return name, begin
}

// A module is a file whose code is executed.
type module struct {
	path     string
	file     *elffile.File // nil if it cannot be read
	names    kit.Functions
	table    *cfi.Table
	sections [sides]*sframe.Section
}

// module returns the file of a mapping, reading it only once, or nil for anonymous memory.
func (w *walk) module(m mapping) *module {
	mod, ok := w.modules[m.path]
	if ok {
		return mod
	}
	var contents []byte
	var err error
	switch {
	case m.path == "[vdso]":
		contents = make([]byte, m.hi-m.lo)
		err = w.mem.read(m.lo, contents)
	case strings.HasPrefix(m.path, "/"):
		contents, err = os.ReadFile(m.path)
	default:
		return nil
	}
	mod = &module{path: m.path}
	if err == nil {
		err = mod.load(w.ctx, contents, &w.opt)
	}
	if err != nil {
		w.Errors = append(w.Errors, fmt.Sprintf("%s: %v", m.path, err))
	}
	w.modules[m.path] = mod
	return mod
}

// load parses a file, and makes an .sframe section for each requested version that it lacks.
func (m *module) load(ctx context.Context, contents []byte, opt *Options) (err error) {
	if m.file, err = elffile.New(bytes.NewReader(contents), int64(len(contents))); err != nil {
		return err
	}
	e, err := elf.NewFile(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	m.names = kit.FunctionsOf(e)
	if s, err := sframe.FromELF(e); err == nil {
		m.sections[s.Version] = s
	} else if !errors.Is(err, sframe.ErrNone) {
		return err
	}
	if m.table, err = convert.LoadCFI(ctx, m.file, convert.Loading{Infer: opt.Infer}); errors.Is(err, cfi.ErrNone) {
		return nil
	}
	for _, v := range opt.Made {
		if err != nil || m.table.Len() == 0 || m.sections[v] != nil {
			continue
		}
		if m.sections[v], err = convertTo(v, contents); errors.Is(err, convert.ErrNoCode) {
			err = nil
		}
	}
	return err
}

// convertTo returns the section that cfi2sframe makes for a file.
func convertTo(v sframe.Version, contents []byte) (*sframe.Section, error) {
	var out bytes.Buffer
	in, opt := bytes.NewReader(contents), convert.Options{Version: v, Infer: true, Force: true, Workers: 1}
	if _, err := convert.Convert(context.Background(), in, int64(len(contents)), &out, opt); err != nil {
		return nil, fmt.Errorf("format %d: %w", v, err)
	}
	e, err := elf.NewFile(bytes.NewReader(out.Bytes()))
	if err != nil {
		return nil, err
	}
	return sframe.FromELF(e)
}

// mapped updates the regions.
func (w *walk) mapped() error {
	maps, err := w.maps()
	if err != nil {
		return err
	}
	old := w.regions
	w.regions = nil
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

// find returns the region that contains a pc, or nil.
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

// site returns the site of a pc, creating it on first use.
func (w *walk) site(pc uint64) *site {
	r := w.find(pc)
	if r == nil {
		return w.lost
	}
	s := r.sites[pc]
	if s == nil {
		s = w.newSite(r, pc)
		r.sites[pc] = s
		w.sites = append(w.sites, s)
	}
	return s
}

// newSite looks up what the CFI and each version of SFrame say about a pc.
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
	for n := len(code); n > 0 && w.mem.read(pc, code[:n]) != nil; n-- { // the mapping may end
		clear(code)
	}
	s.insn = w.m.classify(code)
	if m == nil || m.file == nil {
		return s
	}
	if m.table != nil {
		s.fn = m.table.Find(s.addr)
		if row, ok := m.table.Lookup(s.addr); ok {
			s.answers[0] = w.m.answerOfCFI(row.Rules)
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
			s.answers[v] = w.m.answerOfSFrame(&row.Row)
		}
	}
	return s
}
