package survey

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A Shard is one of several parts of a survey, which machines can make at the same time. The zero value is all of it.
type Shard struct {
	Index int // from 1
	Of    int
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

// Shards are what a survey has of the shards that some paths were divided into together.
type Shards struct {
	Paths   []int    `json:"paths,omitempty"` // indexes, if not all
	Of      int      `json:"of"`
	Divided Division `json:"divided"`
	Have    []int    `json:"have"`  // numbers of the shards
	Parts   []Piece  `json:"parts"` // one for each of them
}

// A Piece is what a merge has to know of a shard.
type Piece struct {
	Shard   int           `json:"shard"`
	Digest  string        `json:"digest"` // of its records
	Skipped []PathSkipped `json:"skipped,omitempty"`

	part int // that it was read from
}

// PathSkipped says what a shard has not examined below a path.
type PathSkipped struct {
	Path int `json:"path,omitzero"` // index
	Skipped
}

// A Division identifies the files that were divided into shards. Shards of different divisions do not add up: a file
// can be in none of them, or in two.
type Division struct {
	Files  uint64 `json:"files,omitzero"` // with unreadable files
	Digest string `json:"digest"`         // of everything that the division depends on
}

// digest returns the first half of a hash.
func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:h.Size()/2]) }

// division returns that of files, which are in the order of pick.
func division(all []candidate) Division {
	const file, unreadable, directory = 0, 1, 2 // the directory is an image
	h := sha256.New()
	var b []byte
	for i := range all {
		f := &all[i]
		kind := byte(file)
		switch {
		case f.err != nil:
			kind = unreadable
		case f.pack:
			kind = directory
		}
		b = binary.AppendUvarint(b[:0], uint64(len(f.name)))
		b = append(b, f.name...)
		b = binary.AppendUvarint(b, f.size)
		b = binary.AppendUvarint(b, uint64(f.path))
		b = append(b, kind)
		h.Write(b)
	}
	return Division{uint64(len(all)), digest(h)}
}

// pick returns the files of a shard, and the division of all. Files are taken by size, the largest first, and each
// goes to the shard that has least. Unreadable files go to the first shard.
func (s Shard) pick(all []candidate) ([]candidate, Division) {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	shards := make(loads, s.Of)
	for i := range shards {
		shards[i].index = i + 1
	}
	var own []candidate
	for i := range all {
		f := &all[i]
		to := 1
		if f.err == nil {
			least := &shards[0]
			to = least.index
			if sum, carry := bits.Add64(least.size, f.size, 0); carry == 0 { // holes can make any size
				least.size = sum
			}
			heap.Fix(shards, 0)
		}
		if to == s.Index {
			own = append(own, *f)
		}
	}
	return own, division(all)
}

// loads are a heap of shards: the first has least.
type loads []struct {
	index int
	size  uint64
}

func (l loads) Len() int { return len(l) }
func (l loads) Less(i, j int) bool {
	return l[i].size < l[j].size || l[i].size == l[j].size && l[i].index < l[j].index
}
func (l loads) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l loads) Push(any)      {}
func (l loads) Pop() any      { return nil }

// shard returns what the survey is, as a shard.
func (s *Survey) shard(shard Shard, divided Division) Shards {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, r := range s.Files {
		e.Encode(r)
	}
	p := Piece{Shard: shard.Index, Digest: digest(h)}
	for i := range s.Paths {
		if skipped := s.Paths[i].Skipped; skipped != (Skipped{}) {
			p.Skipped = append(p.Skipped, PathSkipped{i, skipped})
		}
	}
	return Shards{Of: shard.Of, Divided: divided, Have: []int{shard.Index}, Parts: []Piece{p}}
}

// check returns an error if the shards of a survey of some paths cannot be.
func (s *Shards) check(paths int) error {
	bad := s.Of < 2 || s.Of > maxShards || len(s.Parts) == 0
	bad = bad || slices.ContainsFunc(s.Paths, func(i int) bool { return i < 0 || i >= paths })
	for _, p := range s.Parts {
		bad = bad || p.Shard < 1 || p.Shard > s.Of
		for _, s := range p.Skipped {
			bad = bad || s.Path < 0 || s.Path >= paths
		}
	}
	if bad {
		return errors.New("damaged shards: a number is out of range")
	}
	return nil
}
