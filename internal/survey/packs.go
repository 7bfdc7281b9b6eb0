package survey

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/pack"
	"cfi2sframe/report"
	"cfi2sframe/translate"
)

// A packed is what was found in a file of a package.
type packed struct {
	lines     []line
	functions []function
	skipped   Skipped
}

// An opened is a package that is worked on.
type opened struct {
	*collector
	ctx   context.Context
	name  string
	wg    sync.WaitGroup
	mu    sync.Mutex
	found map[int]*packed // by member; one that is not there is no ELF file
	wrong error           // of the package, if its budget is exceeded
}

// pack examines the files in a package, and adds what it finds. Either all of them count, or, if something is wrong with the
// package, none.
func (c *collector) pack(ctx context.Context, f *candidate) {
	o := &opened{collector: c, ctx: ctx, name: f.name, found: make(map[int]*packed)}
	files, err := pack.Each(ctx, f.name, o.visit)
	o.wg.Wait()
	err = cmp.Or(err, o.wrong)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		why := damaged
		var file *fs.PathError // that of the package
		var system syscall.Errno
		if errors.As(err, &file) || errors.As(err, &system) && system != syscall.ENOENT { // that a part is missing is the package's fault
			why = unreadable
		}
		c.add(f, []line{refused(f.name, why, err)}, nil)
		return
	}
	var lines []line
	var skipped Skipped
	all := worst[function]{max: c.worst, cmp: byLoss}
	for i := range files {
		file := &files[i]
		name := f.name + "!" + file.Name
		if file.Err != nil {
			lines = append(lines, refused(name, unreadable, file.Err))
			continue
		}
		p := o.found[file.Member]
		if p == nil {
			skipped.Other++
			continue
		}
		skipped.add(p.skipped)
		for _, fn := range p.functions {
			fn.inner = file.Name
			fn.seq += len(lines)
			all.add(fn)
		}
		for _, l := range p.lines {
			l.file = name + l.file
			lines = append(lines, l)
		}
	}
	c.skip(f, skipped)
	c.add(f, lines, all.list())
}

// skip counts files of a package that are not examined.
func (c *collector) skip(f *candidate, s Skipped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.survey.roots[f.path].skipped.add(s)
}

// visit examines a file of the package, while the next one is read if there is somebody who has nothing else to do. What
// is found is about files with no name yet.
func (o *opened) visit(m *pack.Member) error {
	h, err := peek(bytes.NewReader(m.Head))
	switch {
	case err != nil:
		return err
	case h.archive && !o.objects:
		o.keep(m, &packed{skipped: Skipped{Objects: 1, Archives: 1}})
		return nil
	case h.object && !o.objects:
		o.keep(m, &packed{skipped: Skipped{Objects: 1}})
		return nil
	case !h.elf && !h.archive:
		return nil
	}
	if err := m.Budget.Spend(elffile.CostHeaders, 1); err != nil {
		return err
	}
	contents, err := m.Load()
	if err != nil {
		return err
	}
	work := func() {
		o.keep(m, o.examined(m, contents, h.archive))
		contents.Close()
	}
	select {
	case <-o.idle:
		o.wg.Go(func() {
			work()
			o.idle <- struct{}{}
		})
	default:
		work()
	}
	return nil
}

func (o *opened) keep(m *pack.Member, p *packed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found[m.Index] = p
	if err := m.Budget.Exceeded(); err != nil && o.wrong == nil {
		o.wrong = fmt.Errorf("in or before %s: %w", m.Name, err)
	}
}

// examined examines an ELF file or an archive.
func (o *opened) examined(m *pack.Member, contents *outfile.Spool, archive bool) *packed {
	u := unit{file: o.name, inner: "?", size: contents.Size()}
	p := new(packed)
	if archive {
		p.lines, p.functions = o.archive(o.ctx, m.Budget, contents, u)
	} else {
		l, functions := o.examine(m.Budget, contents, u)
		p.lines, p.functions = []line{l}, functions
	}
	for i := range p.lines {
		p.lines[i].file = strings.TrimPrefix(p.lines[i].file, u.name())
	}
	p.functions = o.call(contents, p.functions)
	return p
}

// call finds out what functions are called, as long as their file is there: of those that may be among the worst of all. What is
// among those is, too, among the worst of what has been found before.
func (o *opened) call(contents io.ReaderAt, functions []function) []function {
	o.collector.mu.Lock()
	least := uint64(0)
	if kept := o.functions.kept; len(kept) == o.functions.max {
		least = kept[len(kept)-1].lost
	}
	o.collector.mu.Unlock()
	functions = slices.DeleteFunc(functions, func(f function) bool { return f.lost < least })
	files := make(map[unit][]*function)
	for i := range functions {
		files[functions[i].unit] = append(files[functions[i].unit], &functions[i])
	}
	for u, list := range files {
		slices.SortFunc(list, func(a, b *function) int { return cmp.Compare(a.gap.Begin, b.gap.Begin) })
		gaps := make([]translate.Gap, len(list))
		for i, f := range list {
			gaps[i] = f.gap
		}
		places := u.placesIn(contents, gaps)
		for i, f := range list {
			if f.at = new(report.Place); i < len(places) {
				*f.at = places[i]
			} else {
				f.at.Begin = f.gap.Function.Begin
			}
		}
	}
	return functions
}

// placesIn returns where the gaps of a file are, or nothing, where r has what the file is in.
func (u *unit) placesIn(r io.ReaderAt, gaps []translate.Gap) []report.Place {
	f, err := elffile.New(io.NewSectionReader(r, u.off, u.size), u.size)
	if err != nil {
		return nil
	}
	return report.Places(f, gaps)
}

// called says what the function is called.
func (b *BadFunction) called(p *report.Place) {
	b.Function, b.Symbol, b.Section, b.Begin = valid(p.Function), valid(p.Symbol), valid(p.Section), p.Begin
}
