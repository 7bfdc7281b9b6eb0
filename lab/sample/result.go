package sample

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A result is what the sampler has counted.
type result struct {
	counts  map[string]float64
	tallies []tally
	files   []string // with code, in the process
}

// A tally is samples of one kind at one place.
type tally struct {
	kind         string
	end          int
	count        uint64
	offset       uint64
	ours, theirs uint64
	file         string // "" for the program
}

func (r *result) n(name string) float64 { return r.counts[name] }

// percent returns a count as a share of the samples.
func (r *result) percent(name string) float64 { return 100 * r.n(name) / max(r.n("samples"), 1) }

// ratio returns the time of a frame with a cache, relative to _Unwind_Backtrace.
func (r *result) ratio() float64 { return r.n("cache-ns") / max(r.n("peer-ns"), 1) }

// add adds the counts of another run. Its samples are the weight of its medians.
func (r *result) add(o *result) {
	n, m := r.n("samples"), o.n("samples")
	for name, v := range o.counts {
		if strings.HasSuffix(name, "ns") {
			r.counts[name] = (r.counts[name]*n + v*m) / max(n+m, 1)
		} else {
			r.counts[name] += v
		}
	}
	r.tallies = append(r.tallies, o.tallies...)
	r.files = o.files
}

// parse reads the sampler's output: counts, tallies and /proc/self/maps.
func parse(in io.Reader) (*result, error) {
	r := &result{counts: make(map[string]float64)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		var err error
		switch last := len(fields) - 1; {
		case last < 1:
			err = errors.New("too short")
		case fields[0] == "tally":
			var t tally
			_, err = fmt.Sscanf(lines.Text(), "tally %s %d %d %v %v %v",
				&t.kind, &t.end, &t.count, &t.offset, &t.ours, &t.theirs)
			if last > 6 {
				t.file = fields[7]
			}
			r.tallies = append(r.tallies, t)
		case last < 3: // such as "samples 10" and "end 3 9"
			r.counts[strings.Join(fields[:last], " ")], err = strconv.ParseFloat(fields[last], 64)
		case strings.Contains(fields[1], "x") && strings.HasPrefix(fields[last], "/"): // a mapping with code
			r.files = append(r.files, fields[last])
		}
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
	}
	if r.n("samples") == 0 {
		return nil, errors.New("no samples")
	}
	slices.Sort(r.files)
	r.files = slices.Compact(r.files)
	return r, lines.Err()
}
