package kit

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A Tally is a number of stacks of one kind at one place.
type Tally struct {
	Kind         string
	End          int // how the walk by .sframe ended
	Count        uint64
	Addr         uint64 // of the code, as the file's symbols count
	Ours, Theirs uint64 // callers
	File         string // "" for the program
}

// Counts are what a library in C has counted in a program: stacks by .sframe, compared with those of another unwinder.
type Counts struct {
	N       map[string]float64
	Tallies []Tally
	Files   []string // with code, in the process
}

// ReadCounts reads the output of such a library: counts, tallies and /proc/self/maps. It adds the tallies of each kind
// to the counts.
func ReadCounts(path string) (*Counts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &Counts{N: make(map[string]float64)}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		var err error
		switch last := len(fields) - 1; {
		case last < 1:
			err = errors.New("too short")
		case fields[0] == "tally":
			var t Tally
			_, err = fmt.Sscanf(lines.Text(), "tally %s %d %d %v %v %v",
				&t.Kind, &t.End, &t.Count, &t.Addr, &t.Ours, &t.Theirs)
			if last > 6 {
				t.File = fields[7]
			}
			c.Tallies = append(c.Tallies, t)
			c.N["tally "+t.Kind] += float64(t.Count)
		case last < 3: // such as "samples 10" and "end 3 9"
			c.N[strings.Join(fields[:last], " ")], err = strconv.ParseFloat(fields[last], 64)
		case strings.Contains(fields[1], "x") && strings.HasPrefix(fields[last], "/"): // a mapping with code
			c.Files = append(c.Files, fields[last])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %q: %w", path, lines.Text(), err)
		}
	}
	if len(c.N) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	slices.Sort(c.Files)
	c.Files = slices.Compact(c.Files)
	return c, lines.Err()
}

// Add adds the counts of another run. Samples are the weight of times, which are medians.
func (c *Counts) Add(o *Counts) {
	n, m := c.N["samples"], o.N["samples"]
	for name, v := range o.N {
		if strings.HasSuffix(name, "ns") {
			c.N[name] = (c.N[name]*n + v*m) / max(n+m, 1)
		} else {
			c.N[name] += v
		}
	}
	c.Tallies = append(c.Tallies, o.Tallies...)
	c.Files = o.Files
}

// Explain describes the tallies, with their number and the function, the largest number first.
func (c *Counts) Explain(program string, ends []string) []string {
	reasons, places := make(map[string]uint64), make(Places)
	for _, t := range c.Tallies {
		what := t.Kind + " after " + places.Before(cmp.Or(t.File, program), t.Addr)
		if t.End < len(ends) {
			what += ": " + ends[t.End]
		}
		reasons[what] += t.Count
	}
	return Ranked(reasons)
}
