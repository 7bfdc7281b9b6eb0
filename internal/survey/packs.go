package survey

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/pack"
)

// An opened package is being examined.
type opened struct {
	*collector
	ctx   context.Context
	wg    sync.WaitGroup
	mu    sync.Mutex
	found map[int]findings // by member; other members are not ELF
	wrong error            // of the package, if its budget is exceeded
}

// pack examines the files in a package. If something is wrong with the package, none of them counts.
func (c *collector) pack(ctx context.Context, name string) findings {
	o := &opened{collector: c, ctx: ctx, found: make(map[int]findings)}
	files, err := pack.Each(ctx, name, o.visit)
	o.wg.Wait()
	if err = cmp.Or(err, o.wrong); err != nil {
		status := damaged
		var file *fs.PathError // that of the package
		var system syscall.Errno
		// A missing part of the package is damage.
		if errors.As(err, &file) || errors.As(err, &system) && system != syscall.ENOENT {
			status = unreadable
		}
		return refused(name, status, err)
	}
	var all findings
	for _, file := range files {
		inner := name + "!" + file.Name
		found, ok := o.found[file.Member]
		switch {
		case file.Err != nil:
			all.add("", refused(inner, unreadable, file.Err))
		case ok:
			all.add(inner, found)
		default:
			all.skipped.Other++
		}
	}
	return all
}

// visit examines a member of the package, concurrently with the next if there is a free worker. It has no name yet.
func (o *opened) visit(m *pack.Member) error {
	h, err := peek(bytes.NewReader(m.Head))
	if err != nil {
		return err
	}
	if skipped := h.skipped(o.Objects); skipped != (Skipped{}) {
		if skipped.Other == 0 {
			o.keep(m, findings{skipped: skipped})
		}
		return nil
	}
	if err := m.Budget.Spend(elffile.CostHeaders, 1); err != nil {
		return err
	}
	contents, err := m.Load()
	if err != nil {
		return err
	}
	o.wg.Add(1)
	work := func() error {
		defer o.wg.Done()
		defer contents.Close()
		if h.archive {
			o.keep(m, o.archive(o.ctx, m.Budget, contents, "", m.Size))
		} else {
			o.keep(m, o.examine(m.Budget, contents, "", m.Size))
		}
		return nil
	}
	if !o.group.TryGo(work) {
		work()
	}
	return nil
}

func (o *opened) keep(m *pack.Member, found findings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found[m.Index] = found
	if err := m.Budget.Exceeded(); err != nil && o.wrong == nil {
		o.wrong = fmt.Errorf("in or before %s: %w", m.Name, err)
	}
}
