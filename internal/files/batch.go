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
//
// With several workers, Begin begins the work on a file before it is its turn. All else is done by Next, file by file, so
// that the outcome is the same.
type Batch struct {
	Jobs    []*Job // since the last Reset
	Workers int    // threads for all files together; up to 1: files are converted one after the other

	ahead   []*Job            // of Begin, before their turn
	opened  map[inode.ID]bool // files in place whose work was begun before their turn
	threads chan struct{}     // has an element for each thread that works on a job of Begin
	taking  sync.Mutex        // held while a job takes its threads

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

// perThread is how many bytes of a file one thread works on. A larger file has more threads, so that fewer are converted
// at the same time: memory in use depends on their sizes.
const perThread = 8 << 20

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
	b.Begin(ctx, in, out, opt)
	b.Next(ctx)
}

// AddInPlace converts the file that a path leads to, in order to replace it.
func (b *Batch) AddInPlace(ctx context.Context, path string, opt Options) {
	b.BeginInPlace(ctx, path, opt)
	b.Next(ctx)
}

// Begin announces a file that a later Next adds.
func (b *Batch) Begin(ctx context.Context, in, out string, opt Options) *Job {
	return b.begin(ctx, &Job{In: in, out: out, opt: opt})
}

// BeginInPlace is Begin for AddInPlace.
func (b *Batch) BeginInPlace(ctx context.Context, path string, opt Options) *Job {
	return b.begin(ctx, &Job{In: path, out: path, inPlace: true, opt: opt})
}

// begin announces a job, and begins its work unless an earlier job may change the outcome: by another name of the file,
// or by a detached file for the same place. After errors, and if standard input is to be waited for, the work begins
// when it is the job's turn.
func (b *Batch) begin(ctx context.Context, j *Job) *Job {
	if b.detached == nil {
		b.detached, b.opened = make(map[string]string), make(map[inode.ID]bool)
		b.threads = make(chan struct{}, b.Workers)
	}
	j.detached = b.detached
	b.ahead = append(b.ahead, j)
	if b.Workers < 2 || j.opt.Detach || j.In == Stdin || ctx.Err() != nil || j.open(ctx) != nil {
		return j
	}
	if id, ok := inode.Of(j.input.Info); j.inPlace {
		if !ok || b.opened[id] || b.known[id] != nil {
			j.input.Close()
			j.input = nil
			return j
		}
		b.opened[id] = true
	}
	j.begun = make(chan struct{})
	go func() {
		b.work(ctx, j)
		close(j.begun)
	}()
	return j
}

// work does the work of a job when enough threads are free.
func (b *Batch) work(ctx context.Context, j *Job) {
	n := 0
	if b.Workers > 1 {
		n = int(min(int64(b.Workers), 1+j.input.Info.Size()/perThread))
	}
	b.taking.Lock()
	for range n {
		b.threads <- struct{}{}
	}
	b.taking.Unlock()
	j.work(ctx, n)
	for range n {
		<-b.threads
	}
}

// Ahead reports whether more files may begin.
func (b *Batch) Ahead() bool {
	bytes := b.bytes
	for _, j := range b.ahead {
		if j.input != nil {
			bytes += j.input.Info.Size()
		}
	}
	return b.Workers > 1 && len(b.ahead) < maxBatch && bytes < maxBatchBytes
}

// Next adds the first file that was announced.
func (b *Batch) Next(ctx context.Context) {
	j := b.ahead[0]
	b.ahead = b.ahead[1:]
	b.Jobs = append(b.Jobs, j)
	if j.Err = ctx.Err(); j.inPlace {
		j.Err = cmp.Or(j.Err, b.lost[j.In])
	}
	if j.Err == nil && j.input == nil {
		j.Err = j.open(ctx)
	}
	if j.Err != nil {
		return
	}
	id, ok := inode.Of(j.input.Info)
	if !j.inPlace || !ok {
		b.convert(ctx, j)
		return
	}
	if j.same = b.known[id]; j.same != nil {
		if stays := j.same.Result.Stays; stays != "" {
			j.Result = &Result{Result: &convert.Result{Stays: stays}}
		}
		return
	}
	if b.convert(ctx, j); j.Err != nil {
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

// convert converts the file of a job. While others are converted, the system begins to write the result to the disk.
func (b *Batch) convert(ctx context.Context, j *Job) {
	if j.begun == nil {
		b.work(ctx, j)
	} else {
		<-j.begun
	}
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

// Reset discards results that were not committed, and empties the batch. Files that were announced remain.
func (b *Batch) Reset() {
	for _, j := range b.Jobs {
		j.close()
	}
	b.Jobs, b.bytes = nil, 0
}

// Close is Reset that also ends the work on files that were announced. Afterwards nothing of them is left.
func (b *Batch) Close() {
	b.Jobs = append(b.Jobs, b.ahead...)
	b.ahead = nil
	b.Reset()
}
