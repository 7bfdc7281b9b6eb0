package files

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"cfi2sframe/convert"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/panics"
)

// Settings configures Each.
type Settings struct {
	InPlace bool   // results replace their inputs
	DryRun  bool   // nothing is written; a file with several names is converted once, as in place
	Output  string // otherwise: path of the result, or "" if nothing is written
	Workers int    // threads for all files together
	Alone   bool   // convert one file at a time, in order, because a file may affect later ones
	// Options returns the options for the file at paths[i]. It is called again if a conversion is repeated.
	Options func(i int) Options
}

// maxFiles bounds the number of files that take space and descriptors (up to four each) at a time. Syncs of several
// files overlap.
const maxFiles = 8

// perThread is the file size in bytes for which a conversion takes another thread. This also limits how many large
// files are converted at a time, because memory use grows with file size.
const perThread = 8 << 20

// A group is a file with all names that are to be replaced. Usually, there is only one.
type group struct {
	jobs  []*Job
	first int   // index of the first job in the list of all
	names int   // number of hard links among the names
	lost  error // why the file could not be identified, or nil

	done    chan struct{} // closed at the end of the conversion
	shared  bool          // other files may have taken space at the same time
	changed []string      // directories to sync
	next    int           // index of the job to yield
}

// A run is the state of Each.
type run struct {
	*Settings
	groups   []*group
	of       []*group // the group of each path
	threads  chan struct{}
	taking   sync.Mutex        // held while a conversion acquires threads
	detached map[string]string // maps the paths of detached files to their inputs
}

// Each converts files, and yields them in order. A file is written, synced and in place before it is yielded. All names
// of a file are replaced together. Lastly, Each syncs directories, and yields those that cannot be synced.
//
// If space or descriptors run out, the remaining files, including those that failed, are converted one at a time.
func Each(ctx context.Context, paths []string, set *Settings) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		r := newRun(paths, set)
		started, ended, limit := 0, 0, maxFiles // groups
		if set.Alone {
			limit = 1
		}
		defer func() {
			for _, g := range r.groups[:started] {
				<-g.done
			}
		}()
		var changed []string
		for _, g := range r.of {
			if g.next == 0 {
				for ; started < min(ended+limit, len(r.groups)); started++ {
					r.start(ctx, r.groups[started], limit > 1)
				}
				<-g.done
				if g.shared && outfile.IsShortage(g.jobs[0].Err) {
					limit = 1
					for _, other := range r.groups[ended:started] {
						<-other.done
					}
					r.start(ctx, g, false)
					<-g.done
				}
				ended++
				changed = append(changed, g.changed...)
			}
			j := g.jobs[g.next]
			g.jobs[g.next] = nil // results take memory
			if g.next++; !yield(j) {
				return
			}
		}
		for _, j := range syncDirectories(changed) {
			if !yield(j) {
				return
			}
		}
	}
}

// newRun divides the files into groups.
func newRun(paths []string, set *Settings) *run {
	r := &run{Settings: set, threads: make(chan struct{}, max(1, set.Workers)), detached: make(map[string]string)}
	known := make(map[inode.ID]*group)
	names := make(map[string]bool) // hard links
	for i, path := range paths {
		g := &group{first: i}
		if set.InPlace || set.DryRun {
			id, real, err := identify(path)
			if other := known[id]; other != nil {
				g = other
			} else if g.lost = err; id != (inode.ID{}) {
				known[id] = g
			}
			if real != "" && !names[real] {
				names[real] = true
				g.names++
			}
		}
		if len(g.jobs) == 0 {
			r.groups = append(r.groups, g)
		}
		g.jobs = append(g.jobs, &Job{In: path})
		r.of = append(r.of, g)
	}
	return r
}

// identify returns the ID of the file that path names, or zero, and the real path if the file has other hard links.
func identify(path string) (id inode.ID, real string, err error) {
	info, err := os.Stat(path)
	if err == nil && inode.Links(info) > 1 {
		real, err = outfile.RealPath(path)
	}
	if err != nil {
		if !outfile.OfMachine(err) { // recurs when the file is opened
			err = nil
		}
		return inode.ID{}, "", outfile.Plain(err)
	}
	id, _ = inode.Of(info)
	return id, real, nil
}

// start starts a conversion.
func (r *run) start(ctx context.Context, g *group, shared bool) {
	g.done, g.shared = make(chan struct{}), shared && len(r.groups) > 1
	for i, j := range g.jobs {
		g.jobs[i] = &Job{In: j.In}
	}
	j := g.jobs[0]
	j.out, j.inPlace, j.opt, j.detached = r.Output, r.InPlace, r.Options(g.first), r.detached
	if j.inPlace {
		j.out = j.In
	}
	go func() {
		defer close(g.done)
		j.Err = r.convert(ctx, g)
	}()
}

// convert converts a file, and replaces all of its names.
func (r *run) convert(ctx context.Context, g *group) (err error) {
	j, others := g.jobs[0], g.jobs[1:]
	var paths []string
	for _, o := range others {
		paths = append(paths, o.In)
	}
	defer func() { // an error before the first name is replaced is an error of all names
		if err != nil && !errors.Is(err, ErrRefused) {
			j.Result = nil
		}
		for _, o := range others {
			if err != nil {
				o.Err = err
			}
			if j.Result != nil && (err != nil || j.Result.Stays != "") {
				o.Result = &Result{Result: &convert.Result{Stays: j.Result.Stays}}
			}
		}
	}()
	defer j.close()
	defer panics.Recover(&err)
	if err := cmp.Or(ctx.Err(), g.lost); err != nil {
		return err
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	r.work(ctx, j)
	if err := j.convert(ctx); err != nil {
		return err
	}
	if err := j.finish(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	errs, err := j.commit(paths)
	if err != nil || j.output == nil {
		return err
	}
	for i, err := range errs {
		others[i].Err = err
	}
	j.Result.Links = max(0, j.Result.Links-max(0, g.names-1))
	if j.output.Replaces() && !j.opt.NoSync {
		g.changed = append(g.changed, j.output.Replaced().Dir())
		for _, path := range paths {
			g.changed = append(g.changed, filepath.Dir(path))
		}
	}
	return nil
}

// work runs a job once enough threads are free.
func (r *run) work(ctx context.Context, j *Job) {
	n := int(min(int64(cap(r.threads)), 1+j.input.Info.Size()/perThread))
	r.taking.Lock()
	for range n {
		r.threads <- struct{}{}
	}
	r.taking.Unlock()
	defer func() {
		for range n {
			<-r.threads
		}
	}()
	if r.Workers < 2 { // the default, because no other file is converted meanwhile
		j.work(ctx, 0)
		return
	}
	j.work(ctx, n)
}

// syncDirectories syncs directories, each once, and returns those that cannot be synced.
func syncDirectories(dirs []string) (failed []*Job) {
	synced := make(map[string]bool)
	for _, dir := range dirs {
		if synced[dir] {
			continue
		}
		synced[dir] = true
		if real, err := outfile.RealPath(dir); err == nil && real != dir {
			if synced[real] {
				continue
			}
			synced[real] = true
		}
		if err := outfile.SyncDirectory(dir); err != nil {
			failed = append(failed, &Job{In: dir, Err: err})
		}
	}
	return failed
}
