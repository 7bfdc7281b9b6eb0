package sample

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A binary is a file that was converted, or why it was not.
type binary struct {
	path     string
	err      error
	coverage *report.Coverage
	file     *elffile.File
	table    *cfi.Table
	section  *sframe.Section
	symbols  []elf.Symbol
}

// load reads what an explanation needs.
func (b *binary) load(converted string) error {
	original, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	if b.file, err = elffile.New(bytes.NewReader(original), int64(len(original))); err != nil {
		return err
	}
	if b.table, err = cfi.Load(b.file, cfi.Auto, nil); err != nil {
		return err
	}
	e, err := elf.Open(converted)
	if err != nil {
		return err
	}
	defer e.Close()
	if b.section, err = sframe.FromELF(e); err != nil {
		return err
	}
	symbols, _ := e.Symbols() // a file may have none
	dynamic, _ := e.DynamicSymbols()
	b.symbols = append(symbols, dynamic...)
	return nil
}

// name returns the function that an address is in.
func (b *binary) name(addr uint64) string {
	best := ""
	var start uint64
	for _, s := range b.symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value <= addr && addr < s.Value+max(s.Size, 1) && s.Value >= start {
			best, start = s.Name, s.Value
		}
	}
	if best == "" && b.table != nil {
		if f := b.table.Find(addr); f != nil {
			return fmt.Sprintf("function at %#x", f.Begin)
		}
	}
	if best == "" {
		return fmt.Sprintf("%#x", addr)
	}
	return best
}

// why says what there is, or is not, at a pc where a chain ended: of a caller, that of its call.
func (b *binary) why(end int, pc uint64) string {
	for _, at := range []uint64{pc - 1, pc} {
		row, ok, err := b.section.Lookup(at)
		if err != nil {
			return err.Error()
		}
		_, described := b.table.Lookup(at)
		switch {
		case ok && row.Outermost:
			return "code without a caller"
		case ok && end == noRegister:
			return fmt.Sprintf("CFA %v, RA %v, FP %v: by a register that only topmost frames have", row.CFA, row.RA, row.FP)
		case ok:
			continue
		case !described:
			return "no call frame information"
		}
		for i := range b.coverage.Gaps {
			if g := &b.coverage.Gaps[i]; g.Begin <= at && at < g.End {
				return "gap: " + g.Text
			}
		}
		return "a gap that the report does not list"
	}
	return ends[end]
}

// short returns the last part of a path.
func short(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
