package report

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"sort"

	"cfi2sframe/internal/elffile"
)

// What is spent on source lines at most.
const (
	maxLineGaps  = 4096      // gaps that are looked up
	maxDebugInfo = 256 << 20 // bytes of .debug_info
	maxLineRows  = 1 << 24   // rows of line tables that are read
)

// sourceLines finds the source file and line of each gap's first instruction, from the debug
// information of f or of its debug file. Without that, or where it is damaged, there
// are none.
func sourceLines(f, debug *elffile.File, gaps []Gap) {
	var l lines
	if len(gaps) == 0 || l.open(f) != nil && (debug == nil || l.open(debug) != nil) {
		return
	}
	order := make([]int, min(len(gaps), maxLineGaps))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return gaps[order[i]].addr < gaps[order[j]].addr })
	if err := l.fill(gaps, order); err != nil {
		return
	}
}

// lines is debug information.
type lines struct {
	data *dwarf.Data
	base uint64 // of the only section of code, in a relocatable object
	rows int
}

// open reads the debug information of f.
func (l *lines) open(f *elffile.File) (err error) {
	// debug/dwarf is meant for sound files, and this one may be anything.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("debug information: %v", r)
		}
	}()
	var size uint64
	code := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Name == ".debug_info" || s.Name == ".zdebug_info" {
			size += s.Size
		}
		if f.IsObject() && s.Base > 0 && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 && s.Size > 0 {
			l.base, code = s.Base, code+1
		}
	}
	if size == 0 || size > maxDebugInfo || code > 1 {
		return errors.New("no debug information that can be used")
	}
	e, err := elf.NewFile(f.Contents())
	if err != nil {
		return err
	}
	l.data, err = e.DWARF()
	return err
}

// fill goes through the compilation units, and through the line tables of those that the
// gaps are in. The order is that of the gaps' addresses.
func (l *lines) fill(gaps []Gap, order []int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("debug information: %v", r)
		}
	}()
	for r := l.data.Reader(); ; r.SkipChildren() {
		unit, err := r.Next()
		if err != nil || unit == nil {
			return err
		}
		if unit.Tag != dwarf.TagCompileUnit {
			continue
		}
		ranges, err := l.data.Ranges(unit)
		if err != nil {
			return err
		}
		if l.has(ranges, gaps, order) {
			if err := l.unit(unit, gaps, order); err != nil {
				return err
			}
		}
	}
}

// has reports whether a gap begins in the ranges.
func (l *lines) has(ranges [][2]uint64, gaps []Gap, order []int) bool {
	for _, r := range ranges {
		i := sort.Search(len(order), func(i int) bool { return gaps[order[i]].addr-l.base >= r[0] })
		if i < len(order) && gaps[order[i]].addr-l.base < r[1] {
			return true
		}
	}
	return false
}

// unit reads the line table of a compilation unit.
func (l *lines) unit(unit *dwarf.Entry, gaps []Gap, order []int) error {
	r, err := l.data.LineReader(unit)
	if r == nil || err != nil {
		return err
	}
	var last, e dwarf.LineEntry
	for open := false; ; last, open = e, !e.EndSequence {
		if err := r.Next(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if l.rows++; l.rows > maxLineRows {
			return errors.New("too many rows")
		}
		if !open || last.File == nil || last.Address >= e.Address {
			continue
		}
		for i := sort.Search(len(order), func(i int) bool { return gaps[order[i]].addr-l.base >= last.Address }); i < len(order); i++ {
			g := &gaps[order[i]]
			if g.addr-l.base >= e.Address {
				break
			}
			g.Source, g.Line = last.File.Name, last.Line
		}
	}
}
