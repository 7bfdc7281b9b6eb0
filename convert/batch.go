package convert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// A Batch is files that are converted, and then put in their places together: to wait for the disk
// once for many of them takes little longer than for one. Until then they are files without
// names, of which nothing stays if the program ends.
//
// Where several names of one file (hard or symbolic links) are to be replaced by the result, it
// is converted once, and all get it.
type Batch struct {
	Jobs []*Job // that were added since the last Reset

	named  map[inode.ID]map[outfile.Entry]bool // the names of files with several that are to be replaced
	unseen map[string]error                    // by path, why it could not be found out whether it is one
	done   map[inode.ID]result                 // by what it was before or is now
	bytes  int64
}

// A Job is one file of a batch.
type Job struct {
	In string
	// Result is nil after an error, and for another name of a file that was there before, unless that stays as it is.
	Result *Result
	// Err is why it is not, or not for certain, in its place. With ErrCoverage there is a Result.
	Err error

	pending *pending
	noSync  bool
	// Of another name of a file that was there before:
	input *input
	other *Job   // in this batch, or nil
	res   result // if it is done already
}

// A result is a file that was replaced by its result, and has several names or can be met again.
type result struct {
	name string
	id   inode.ID
}

// What a batch holds at most. What is converted takes room on the disk until then.
const (
	maxBatch      = 64
	maxBatchBytes = 512 << 20
	filesPerJob   = 4   // that are open
	filesKept     = 100 // for everything else
)

// Full reports whether the batch is to be put in its place before another file is added.
func (b *Batch) Full(opt FileOptions) bool {
	room := maxBatch
	if limit := openFiles(); limit < filesKept+maxBatch*filesPerJob {
		room = max(1, (limit-filesKept)/filesPerJob)
	}
	return (opt.NoSync || opt.DryRun || opt.DebugLinkUpdate != "") && len(b.Jobs) > 0 || len(b.Jobs) >= room || b.bytes >= maxBatchBytes
}

// Expect tells which files are going to be replaced, so that the names of them are known that
// are not. A file that cannot be looked at gets the error when its turn comes.
func (b *Batch) Expect(paths []string) {
	b.named, b.unseen = make(map[inode.ID]map[outfile.Entry]bool), make(map[string]error)
	for _, path := range paths {
		if err := b.expect(path); err != nil {
			b.unseen[path] = outfile.Plain(err)
		}
	}
}

// expect is Expect for one file.
func (b *Batch) expect(path string) error {
	info, err := os.Stat(path)
	if err != nil || inode.Links(info) < 2 {
		return err
	}
	entry, err := outfile.EntryOf(path)
	if id, ok := inode.Of(info); ok && err == nil {
		if b.named[id] == nil {
			b.named[id] = make(map[outfile.Entry]bool)
		}
		b.named[id][entry] = true
	}
	return err
}

// Add converts the file in to out, as File does.
func (b *Batch) Add(ctx context.Context, in, out string, opt FileOptions) {
	j := &Job{In: in, noSync: opt.NoSync}
	b.Jobs = append(b.Jobs, j)
	if j.Err = ctx.Err(); j.Err != nil {
		return
	}
	p, err := prepareFile(ctx, in, out, opt)
	b.took(j, p, err)
}

// AddInPlace converts the file that a path leads to, and which is to be replaced.
func (b *Batch) AddInPlace(ctx context.Context, path string, opt FileOptions) {
	j := &Job{In: path, noSync: opt.NoSync}
	b.Jobs = append(b.Jobs, j)
	if j.Err = cmp.Or(ctx.Err(), b.unseen[path]); j.Err != nil {
		return
	}
	in, err := openInput(ctx, path, use{replace: true})
	if err != nil {
		j.Err = err
		return
	}
	id, ok := inode.Of(in.info)
	if ok && b.known(j, id) {
		j.input = in
		return
	}
	p, err := prepare(ctx, in, path, opt)
	if err == nil && len(b.named[id]) > 0 {
		p.res.Links = max(0, p.res.Links-len(b.named[id])+1)
	}
	b.took(j, p, err)
}

// took notes what came of a conversion.
func (b *Batch) took(j *Job, p *pending, err error) {
	j.pending, j.Err = p, err
	if p == nil {
		return
	}
	j.Result = p.res
	b.bytes += p.written()
	p.start()
}

// known reports whether a job is another name of a file that was converted before.
func (b *Batch) known(j *Job, id inode.ID) bool {
	for _, other := range b.Jobs {
		if p := other.pending; other.Err == nil && p != nil {
			if was, ok := inode.Of(p.input.info); ok && was == id {
				j.other = other
				if p.res.Stays != "" {
					j.Result = &Result{Stays: p.res.Stays}
				}
				return true
			}
		}
	}
	var ok bool
	j.res, ok = b.done[id]
	return ok
}

// Finish makes the results ready for their places, all at the same time, unless ctx has ended.
func (b *Batch) Finish(ctx context.Context) {
	var wg sync.WaitGroup
	for _, j := range b.Jobs {
		if j.Err == nil {
			j.Err = ctx.Err()
		}
		switch {
		case j.Err != nil || j.pending == nil:
		case len(b.Jobs) == 1:
			j.Err = j.pending.finish()
		default:
			wg.Go(func() { j.Err = j.pending.finish() })
		}
	}
	wg.Wait()
}

// Commit puts the results in their places, one after the other, until ctx ends.
func (b *Batch) Commit(ctx context.Context) {
	var done []*Job
	for _, j := range b.Jobs {
		if j.Err == nil {
			j.Err = ctx.Err()
		}
		switch {
		case j.Err != nil:
		case j.pending != nil:
			if j.Err = j.pending.commit(); j.Err == nil {
				done = append(done, j)
				b.remember(j)
			}
		default:
			if j.Err = b.relink(j); j.Err == nil {
				done = append(done, j)
			}
		}
	}
	syncFolders(done)
}

// syncFolders makes sure that the names of jobs that are done are on the disk.
func syncFolders(done []*Job) {
	places := make(map[*outfile.Place]*Job)
	for _, j := range done {
		if p := j.place(); p != nil {
			places[p] = j
		}
	}
	for p, err := range outfile.SyncFolders(slices.Collect(maps.Keys(places))) {
		places[p].Err = err
	}
}

// place returns where a job's file has replaced another, if that is to be on the disk.
func (j *Job) place() *outfile.Place {
	switch p := j.pending; {
	case j.noSync:
		return nil
	case p == nil:
		return j.input.place
	case p.output == nil:
		return nil
	default:
		return p.output.Replaced()
	}
}

// remember notes that a job is done, for names of the file that come later.
func (b *Batch) remember(j *Job) {
	p := j.pending
	if p.input.place == nil || p.output == nil {
		return
	}
	info, err := p.output.Stat()
	if err != nil {
		return
	}
	after, ok := inode.Of(info)
	if !ok {
		return
	}
	if b.done == nil {
		b.done = make(map[inode.ID]result)
	}
	j.res = result{j.In, after}
	b.done[after] = j.res
	if before, ok := inode.Of(p.input.info); ok && inode.Links(p.input.info) > 1 { // otherwise a new file can have the number
		b.done[before] = j.res
	}
}

// relink makes the name of a job another one of the result that it stands for, if it is not yet.
func (b *Batch) relink(j *Job) error {
	if j.other != nil {
		switch {
		case j.other.Err != nil:
			return fmt.Errorf("it is the same file as %s, which was not replaced", j.other.In)
		case j.other.pending.output == nil: // it stays as it is
			return nil
		}
		j.res = j.other.res
	}
	if err := outfile.Relink(j.res.name, j.res.id, j.input.place); err != nil {
		return outfile.Plain(err)
	}
	// When its last name is gone, a new file can have its number.
	if info, err := j.input.src.Stat(); err != nil || inode.Links(info) == 0 {
		if id, ok := inode.Of(j.input.info); ok && id != j.res.id {
			delete(b.done, id)
		}
	}
	return nil
}

// Reset gives up what is not in its place, and empties the batch.
func (b *Batch) Reset() {
	for _, j := range b.Jobs {
		if j.pending != nil {
			j.pending.close()
		}
		if j.input != nil {
			j.input.close()
		}
	}
	b.Jobs, b.bytes = nil, 0
}
