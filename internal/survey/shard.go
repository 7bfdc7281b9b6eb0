package survey

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/report"
)

// A Shard is one of several parts of a survey, which machines can make at the same time. The zero value is all of it.
type Shard struct {
	Index int `json:"shard"` // from 1
	Of    int `json:"of"`
}

// maxShards is the largest number of shards.
const maxShards = 1 << 20

// ParseShard reads the form I/N.
func ParseShard(s string) (Shard, error) {
	i, n, _ := strings.Cut(s, "/")
	index, errI := strconv.Atoi(i)
	of, errN := strconv.Atoi(n)
	if errI != nil || errN != nil || index < 1 || index > of || of > maxShards {
		return Shard{}, fmt.Errorf("%s is not I/N with whole numbers, 1 <= I <= N <= %d", strconv.Quote(s), maxShards)
	}
	return Shard{index, of}, nil
}

// whole reports whether the shard is everything.
func (s Shard) whole() bool { return s.Of <= 1 }

// has reports whether a file belongs to the shard. Only its name decides, so that a file is in one shard even if other
// files are added or removed while machines work.
func (s Shard) has(name string) bool {
	h := fnv.New64a()
	io.WriteString(h, name)
	return s.whole() || h.Sum64()%uint64(s.Of) == uint64(s.Index-1)
}

// A Piece is a shard of some paths that have missing shards.
type Piece struct {
	Shard
	Paths   []int           `json:"paths"`   // indexes
	Digest  string          `json:"digest"`  // of its files
	Skipped map[int]Skipped `json:"skipped"` // for each path that does not lie in another one of Paths

	part int // of a merge
}

// piece returns what the survey is, as a shard.
func (s *Survey) piece(shard Shard) Piece {
	p := Piece{Shard: shard, Skipped: make(map[int]Skipped)}
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, r := range s.Files {
		e.Encode(r)
	}
	p.Digest = hex.EncodeToString(h.Sum(nil)[:h.Size()/2])
	around := enclosing(reals(s.Paths))
	for i := range s.Paths {
		p.Paths = append(p.Paths, i)
		if len(around(i)) == 0 {
			p.Skipped[i] = s.Paths[i].Skipped
		}
	}
	return p
}

// groups divides sorted pieces by the survey that they are shards of.
func groups(pieces []Piece) (out [][]Piece) {
	for i, p := range pieces {
		if i == 0 || p.Of != pieces[i-1].Of || !slices.Equal(p.Paths, pieces[i-1].Paths) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p)
	}
	return out
}

// numbers returns the numbers of the shards.
func numbers(pieces []Piece) []int {
	var out []int
	for i := range pieces {
		out = append(out, pieces[i].Index)
	}
	return out
}

// Only names the shards of the survey if others are missing, and is "" otherwise.
func (s *Survey) Only() string {
	var only []string
	for _, g := range groups(s.Shards) {
		only = append(only, ranges(numbers(g), g[0].Of)+" of "+pathNames(s.Paths, g[0].Paths))
	}
	if len(only) == 0 {
		return ""
	}
	return "Only " + enumerate(only, 10, "path") + "."
}

// missing says which shards are missing in a group.
func missing(g []Piece, paths []Part) string {
	have := numbers(g)
	var none []int
	for i := 1; i <= g[0].Of; i++ {
		if len(have) > 0 && have[0] == i {
			have = have[1:]
		} else {
			none = append(none, i)
		}
	}
	return ranges(none, g[0].Of) + " of " + pathNames(paths, g[0].Paths)
}

// ranges names shards.
func ranges(list []int, of int) string {
	var out []string
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && list[end] == list[end-1]+1 {
			end++
		}
		if end-i < 3 { // two are not a range
			end = i + 1
			out = append(out, strconv.Itoa(list[i]))
		} else {
			out = append(out, fmt.Sprintf("%d to %d", list[i], list[end-1]))
		}
		i = end
	}
	what := "shards "
	if len(list) == 1 {
		what = "shard "
	}
	return fmt.Sprintf("%s%s of %d", what, enumerate(out, 20, "range"), of)
}

// heading says what was surveyed.
func (s *Survey) heading() string {
	all := make([]int, len(s.Paths))
	for i := range all {
		all[i] = i
	}
	return pathNames(s.Paths, all)
}

// pathNames names the first of some paths.
func pathNames(paths []Part, indexes []int) string {
	var names []string
	for _, i := range indexes {
		names = append(names, report.Printable(paths[i].Name))
	}
	return enumerate(names, 3, "path")
}

// enumerate names the first of some things, and counts the others.
func enumerate(names []string, most int, what string) string {
	last := ""
	if n := len(names) - most; n > 0 {
		names, last = names[:most], countOf(n, "other "+what)
	} else if len(names) > 1 {
		names, last = names[:len(names)-1], names[len(names)-1]
	}
	text := strings.Join(names, ", ")
	if last != "" {
		text += " and " + last
	}
	return text
}
