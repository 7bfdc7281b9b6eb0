package files

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"

	"cfi2sframe/convert"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// A Batch converts files, and then replaces the old ones together. If several names of one file (hard or symbolic
// links) are to be replaced, the file is converted once, and all names get the result.
type Batch struct {
	Jobs []*Job // since the last Reset

	named map[inode.ID]map[string]bool // the names to be replaced of files with several names
	lost  map[string]error             // why it is unknown of which file a path is a name
	known map[inode.ID]*Job            // jobs that replace files, by the ID of the old or the new file
	bytes int64                        // size of the results

	detached map[string]string // inputs by the paths of their detached files
}

// Bounds of a batch. Until the old files are replaced, results take additional space on the disk.
const (
	maxBatch      = 32 // a job has up to four open files
	maxBatchBytes = 512 << 20
)

// Full reports whether the batch must be committed before another file is added.
func (b *Batch) Full(opt Options) bool {
	alone := opt.NoSync || opt.DryRun || opt.DebugLinkUpdate != "" || opt.Detach
	return alone && len(b.Jobs) > 0 || len(b.Jobs) >= maxBatch || b.bytes >= maxBatchBytes
}

// Expect notes which files are to be replaced, so that their other names are known.
func (b *Batch) Expect(paths []string) {
	b.named, b.lost = make(map[inode.ID]map[string]bool), make(map[string]error)
	for _, path := range paths {
		info, err := os.Stat(path)
		real := ""
		if err == nil && inode.Links(info) > 1 {
			real, err = outfile.RealPath(path)
		}
		if err != nil {
			if outfile.OfMachine(err) { // others are found again when the file is opened
				b.lost[path] = outfile.Plain(err)
			}
			continue
		}
		id, ok := inode.Of(info)
		if !ok || real == "" {
			continue
		}
		if b.named[id] == nil {
			b.named[id] = make(map[string]bool)
		}
		b.named[id][real] = true
	}
}

// Add converts the file in, and writes the result to out.
func (b *Batch) Add(ctx context.Context, in, out string, opt Options) {
	j := b.job(in, out, opt)
	if j.Err = ctx.Err(); j.Err != nil {
		return
	}
	if j.input, j.Err = open(ctx, in, opt.Run.SkipUnsupported); j.Err == nil {
		b.convert(ctx, j)
	}
}

// AddInPlace converts the file that a path leads to, in order to replace it.
func (b *Batch) AddInPlace(ctx context.Context, path string, opt Options) {
	j := b.job(path, path, opt)
	if j.Err = cmp.Or(ctx.Err(), b.lost[path]); j.Err != nil {
		return
	}
	if j.input, j.Err = OpenInPlace(path); j.Err != nil {
		return
	}
	id, ok := inode.Of(j.input.Info)
	if j.same = b.known[id]; ok && j.same != nil {
		if stays := j.same.Result.Stays; stays != "" {
			j.Result = &Result{Result: &convert.Result{Stays: stays}}
		}
		return
	}
	if b.convert(ctx, j); j.Err != nil || !ok {
		return
	}
	if b.known == nil {
		b.known = make(map[inode.ID]*Job)
	}
	b.known[id] = j
	if names := len(b.named[id]); names > 0 {
		j.Result.Links = max(0, j.Result.Links-names+1)
	}
}

// job adds a job.
func (b *Batch) job(in, out string, opt Options) *Job {
	if b.detached == nil {
		b.detached = make(map[string]string)
	}
	j := &Job{In: in, out: out, opt: opt, detached: b.detached}
	b.Jobs = append(b.Jobs, j)
	return j
}

// convert converts the file of a job. While others are converted, the system begins to write the result to the disk.
func (b *Batch) convert(ctx context.Context, j *Job) {
	if j.Err = j.convert(ctx); j.Err != nil {
		j.close()
		j.input, j.output, j.debug = nil, nil, nil
		return
	}
	if j.output == nil {
		return
	}
	if info, err := j.output.Stat(); err == nil {
		b.bytes += info.Size()
	}
	if !j.opt.NoSync {
		j.output.StartSync()
	}
}

// Finish makes the results ready to replace files, all at the same time, unless ctx has ended.
func (b *Batch) Finish(ctx context.Context) {
	var wg sync.WaitGroup
	for _, j := range b.Jobs {
		if j.Err == nil {
			j.Err = ctx.Err()
		}
		if j.Err == nil && j.same == nil {
			wg.Go(func() { j.Err = j.finish() })
		}
	}
	wg.Wait()
}

// Commit replaces the old files by the results, one after the other, until ctx ends.
func (b *Batch) Commit(ctx context.Context) {
	for _, j := range b.Jobs {
		if j.Err == nil {
			j.Err = ctx.Err()
		}
		switch {
		case j.same == nil:
			if j.Err == nil {
				j.Err = j.commit()
			}
			b.remember(j)
		case j.Err == nil:
			j.Err = b.relink(j)
		}
	}
	synced := make(map[string]error) // directories
	for _, j := range b.Jobs {
		p := j.place()
		if p == nil || j.Err != nil || j.opt.NoSync {
			continue
		}
		err, done := synced[p.Dir()]
		if !done {
			err = p.SyncDirectory()
			synced[p.Dir()] = err
		}
		j.Err = err
	}
}

// place returns where a job's file has replaced another one, or nil.
func (j *Job) place() *outfile.Place {
	switch {
	case j.same != nil:
		return j.input.place
	case j.output != nil:
		return j.output.Replaced()
	}
	return nil
}

// remember notes the result for other names of the file that come later.
func (b *Batch) remember(j *Job) {
	if j.input == nil || j.input.place == nil {
		return
	}
	if j.Err == nil && j.output != nil {
		info, err := j.output.Stat()
		if j.lost = err; err == nil {
			j.id, _ = inode.Of(info)
		}
	}
	before, _ := inode.Of(j.input.Info)
	if j.id == (inode.ID{}) {
		delete(b.known, before)
		return
	}
	if inode.Links(j.input.Info) == 1 { // a new file can have the number
		delete(b.known, before)
	}
	b.known[j.id] = j
}

// relink makes the name of a job another name of the result, if it is not one yet.
func (b *Batch) relink(j *Job) error {
	if j.same.id == (inode.ID{}) {
		if j.same.Err != nil {
			return fmt.Errorf("it is the same file as %s, which was not replaced", j.same.In)
		}
		if j.same.lost != nil {
			return fmt.Errorf("it is the same file as %s, whose result cannot be linked to this name: %w", j.same.In,
				outfile.Plain(j.same.lost))
		}
		return nil // it is unchanged
	}
	if err := outfile.Relink(j.same.In, j.same.id, j.input.place); err != nil {
		return outfile.Plain(err)
	}
	// When its last name is gone, a new file can have its number.
	if info, err := j.input.Stat(); err != nil || inode.Links(info) == 0 {
		if id, ok := inode.Of(j.input.Info); ok && id != j.same.id {
			delete(b.known, id)
		}
	}
	return nil
}

// Reset discards results that were not committed, and empties the batch.
func (b *Batch) Reset() {
	for _, j := range b.Jobs {
		j.close()
	}
	b.Jobs, b.bytes = nil, 0
}
