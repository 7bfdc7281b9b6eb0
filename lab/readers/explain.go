package readers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A cause is why glibc's chain is not the one of the CFI.
type cause string

const (
	noObject  cause = "code in no file"
	noCFI     cause = "code without CFI"
	noForm    cause = "CFI that V2 has no form for"
	missing   cause = "code that the section leaves out"
	mistaken  cause = "a row that contradicts the CFI"
	afterCall cause = "a return address behind the end of a function or row"
	outermost cause = "an outermost frame"
	longer    cause = "code without CFI, of stubs that the section has: the chain goes on"
)

// An explained is a file of a chain.
type explained struct {
	section    *sframe.Section // nil if there is none
	table      *cfi.Table
	mismatches []report.Mismatch
	gaps       []report.Gap // of the section that we would write
}

// An explainer finds out causes, by the files as they were run.
type explainer struct {
	folders []string
	files   map[string]*explained
}

func (ex *explainer) file(name string) (*explained, error) {
	if e := ex.files[name]; e != nil {
		return e, nil
	}
	for _, folder := range ex.folders {
		path := filepath.Join(folder, name)
		f, err := linked.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e := new(explained)
		if e.table, err = cfi.Load(f, cfi.Auto, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		checked, err := files.Check(context.Background(), path, convert.Options{})
		if err != nil {
			return nil, err
		}
		e.mismatches = checked.Mismatches
		ours, err := files.Convert(context.Background(), path, "", files.Options{Options: convert.Options{Version: sframe.V2, Force: true, DryRun: true, Brief: true}})
		if err != nil {
			return nil, err
		}
		e.gaps = ours.Coverage[0].Gaps
		if _, _, e.section, err = sectionOf(path); err != nil {
			return nil, err
		}
		ex.files[name] = e
		return e, nil
	}
	return nil, fmt.Errorf("%s is in none of %q", name, ex.folders)
}

// explain returns the cause that comes first on the way up the stack, or "".
func (ex *explainer) explain(p pair) (cause, error) {
	// The CFI's chain ends where there is no CFI; ours has stubs there.
	if n := len(p.dwarf); n > 1 && len(p.backtrace) > n && slices.Equal(p.backtrace[1:n], p.dwarf[1:]) {
		e, err := ex.file(p.dwarf[n-1].file)
		if err != nil {
			return "", err
		}
		if _, ok := e.table.Lookup(p.dwarf[n-1].offset); !ok {
			return longer, nil
		}
	}
	exact := false // this frame was interrupted, and its pc is no return address
	for i, at := range p.dwarf {
		if at.file == "?" {
			return noObject, nil
		}
		e, err := ex.file(at.file)
		if err != nil {
			return "", err
		}
		if i == 0 {
			continue // at another call than that of backtrace()
		}
		if fn := e.table.Find(at.offset); fn != nil && fn.Signal() {
			exact = true // glibc knows the trampoline by its instructions
			continue
		}
		why, err := e.explain(at.offset, exact)
		if why == outermost && i == len(p.dwarf)-1 {
			break // which glibc knows by its frame pointer
		}
		if why == afterCall || why == mistaken || err != nil {
			return why, err
		}
		if why != "" {
			// Where there is no row there is no chain, or one that ends.
			if n := len(p.backtrace); n > 1 && (n > len(p.dwarf) || !slices.Equal(p.backtrace[1:], p.dwarf[1:n])) {
				return "", nil
			}
			return why, nil
		}
		exact = false
	}
	return "", nil
}

// explain returns what is wrong with a frame, or "".
func (e *explained) explain(pc uint64, exact bool) (cause, error) {
	row, ok, err := e.section.Lookup(pc)
	if err != nil {
		return "", err
	}
	at := pc
	if !exact {
		at-- // as the DWARF unwinder does
	}
	before, okBefore, err := e.section.Lookup(at)
	if err != nil {
		return "", err
	}
	for _, m := range e.mismatches {
		if pc >= m.Begin && pc < m.End {
			return mistaken, nil
		}
	}
	rules, hasCFI := e.table.Lookup(at)
	switch {
	case !hasCFI && e.begins(pc):
		return noCFI, nil // nothing has called: there is padding before it
	case okBefore && (!ok || row.Row != before.Row):
		return afterCall, nil
	case ok && okBefore:
		return "", nil
	case !hasCFI:
		return noCFI, nil
	case rules.RA.Rule == cfi.RuleUndefined:
		return outermost, nil
	}
	for i := range e.gaps {
		if g := &e.gaps[i]; at >= g.Begin && at < g.End {
			return noForm, nil
		}
	}
	return missing, nil
}

// begins reports whether a function begins at a pc.
func (e *explained) begins(pc uint64) bool {
	fn := e.table.Find(pc)
	return fn != nil && fn.Begin == pc
}
