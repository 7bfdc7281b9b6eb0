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

// A Batch converts files, then replaces the originals together. If several names (hard or symbolic links) of a file are
// to be replaced, it is converted once, and all names get the result.
//
// With several workers, Begin starts the conversion early. Everything else happens in Next, file by file, so that the
// outcome does not depend on the number of workers.
type Batch struct {
	Jobs    []*Job // since the last Reset
	Workers int    // threads for all files together; at most 1: no concurrency

	ahead   []*Job            // announced by Begin
	opened  map[inode.ID]bool // files to replace whose conversion started early
	threads chan struct{}     // semaphore for the threads of announced jobs
	taking  sync.Mutex        // held while a job acquires threads

	named map[inode.ID]map[string]bool // names to replace, by file, for files with several hard links
	lost  map[string]error             // by path: why the file could not be identified
	known map[inode.ID]*Job            // jobs that replace files, by the ID of the old or the new file
	bytes int64                        // size of the results

	detached map[string]string // maps the paths of detached files to their inputs
}

// Bounds of a batch. Results take additional disk space until they replace the originals.
const (
	maxBatch      = 32 // a job has up to four open files
	maxBatchBytes = 512 << 20
)

// perThread is the file size in bytes for which a conversion takes another thread. This also limits how many large
// files are converted at a time, because memory use grows with file size.
const perThread = 8 << 20

// Full reports whether the batch must be committed before another file is added.
func (b *Batch) Full(opt Options) bool {
	alone := opt.NoSync || opt.DryRun || opt.DebugLinkUpdate != "" || opt.Detach
	return alone && len(b.Jobs) > 0 || len(b.Jobs) >= maxBatch || b.bytes >= maxBatchBytes
}

// Expect records which files are to be replaced, so that their other names are recognized.
func (b *Batch) Expect(paths []string) {
	b.named, b.lost = make(map[inode.ID]map[string]bool), make(map[string]error)
	for _, path := range paths {
		info, err := os.Stat(path)
		real := ""
		if err == nil && inode.Links(info) > 1 {
			real, err = outfile.RealPath(path)
		}
		if err != nil {
			if outfile.OfMachine(err) { // other errors recur when the file is opened
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

// Add converts the input file (in), and writes the result to out.
func (b *Batch) Add(ctx context.Context, in, out string, opt Options) {
	b.Begin(ctx, in, out, opt)
	b.Next(ctx)
}

// AddInPlace is like Add, but the result replaces the input file.
func (b *Batch) AddInPlace(ctx context.Context, path string, opt Options) {
	b.BeginInPlace(ctx, path, opt)
	b.Next(ctx)
}

// Begin announces a file that a later Next adds.
func (b *Batch) Begin(ctx context.Context, in, out string, opt Options) *Job {
	return b.begin(ctx, &Job{In: in, out: out, opt: opt})
}

// BeginInPlace is like Begin, but the result replaces the input file.
func (b *Batch) BeginInPlace(ctx context.Context, path string, opt Options) *Job {
	return b.begin(ctx, &Job{In: path, out: path, inPlace: true, opt: opt})
}

// begin announces a job. It starts the conversion unless an earlier job may change the outcome, through another name of
// the file or the same detached file. After errors, and for standard input, the conversion waits for Next.
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

// work runs a job once enough threads are free.
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

// Ahead reports whether more files may be announced.
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

// convert converts the file of a job, and starts writeback of the result, which overlaps with later conversions.
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

// Finish makes all results ready to replace files, concurrently, unless ctx is canceled.
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

// Commit replaces the originals with the results, one by one, until ctx is canceled.
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
		if j.Err != nil || j.opt.NoSync { // an interrupted job may still be working
			continue
		}
		p := j.place()
		if p == nil {
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

// place returns the Place of the file that the job has replaced, or nil.
func (j *Job) place() *outfile.Place {
	switch {
	case j.same != nil:
		return j.input.place
	case j.output != nil:
		return j.output.Replaced()
	}
	return nil
}

// remember records the result for later names of the same file.
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
	if inode.Links(j.input.Info) == 1 { // the inode number may be reused
		delete(b.known, before)
	}
	b.known[j.id] = j
}

// relink makes the job's name a hard link to the result, unless it already is one.
func (b *Batch) relink(j *Job) error {
	if j.same.id == (inode.ID{}) {
		if j.same.Err != nil {
			return fmt.Errorf("it is the same file as %s, which was not replaced", j.same.In)
		}
		if j.same.lost != nil {
			return fmt.Errorf("it is the same file as %s, whose result cannot be linked to this name: %w", j.same.In,
				outfile.Plain(j.same.lost))
		}
		return nil // the file is unchanged
	}
	if err := outfile.Relink(j.same.In, j.same.id, j.input.place); err != nil {
		return outfile.Plain(err)
	}
	// If no name of the old file is left, its inode number may be reused.
	if info, err := j.input.Stat(); err != nil || inode.Links(info) == 0 {
		if id, ok := inode.Of(j.input.Info); ok && id != j.same.id {
			delete(b.known, id)
		}
	}
	return nil
}

// Reset discards uncommitted results and empties the batch, except for announced files.
func (b *Batch) Reset() {
	for _, j := range b.Jobs {
		j.close()
	}
	b.Jobs, b.bytes = nil, 0
}

// Close is like Reset, but also waits for the work on announced files, and discards its results.
func (b *Batch) Close() {
	b.Jobs = append(b.Jobs, b.ahead...)
	b.ahead = nil
	b.Reset()
}
