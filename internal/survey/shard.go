package survey

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// A Shard is one of several parts of what is to be surveyed, which machines can work on at the same time. The zero value
// is all of it.
type Shard struct {
	Index int // from 1
	Of    int
}

// maxShards is how many shards there can be.
const maxShards = 1 << 20

// ParseShard reads the form I/N.
func ParseShard(s string) (Shard, error) {
	i, n, _ := strings.Cut(s, "/")
	index, errI := strconv.Atoi(i)
	of, errN := strconv.Atoi(n)
	if errI != nil || errN != nil || index < 1 || index > of || of > maxShards {
		return Shard{}, fmt.Errorf("%s: I/N with whole numbers, 1 <= I <= N <= %d, was expected", strconv.Quote(s), maxShards)
	}
	return Shard{index, of}, nil
}

// whole reports whether the shard is everything.
func (s Shard) whole() bool { return s.Of <= 1 }

// A sized file is one that has to be in a shard.
type sized struct {
	candidate
	size uint64
}

// A Division says what files were divided into shards. Shards of different ones do not add up: a file can be in none of them, or in
// two.
type Division struct {
	Files  int    `json:"files,omitzero"` // how many, with those that cannot be read
	Digest string `json:"digest"`         // of everything that has a part in the division
}

// digestSize is how many bytes of SHA-256 a digest has.
const digestSize = 16

// division returns that of files, which are in the order of pick.
func division(all []sized) Division {
	const file, unreadable, folder = 0, 1, 2 // the folder is an image
	h := sha256.New()
	var b []byte
	for i := range all {
		f := &all[i]
		kind := byte(file)
		switch {
		case f.err != nil:
			kind = unreadable
		case f.pack:
			kind = folder
		}
		b = binary.AppendUvarint(b[:0], uint64(len(f.name)))
		b = append(b, f.name...)
		b = binary.AppendUvarint(b, f.size)
		b = binary.AppendUvarint(b, uint64(f.path))
		b = append(b, kind)
		h.Write(b)
	}
	return Division{len(all), hex.EncodeToString(h.Sum(nil)[:digestSize])}
}

// check returns an error if it is none.
func (d Division) check() error {
	if b, err := hex.DecodeString(d.Digest); err != nil || len(b) != digestSize || d.Files < 0 || d.Files > maxNumber {
		return fmt.Errorf("divided: %d files with digest %.40q; 0 to %d with one of %d hexadecimal digits were expected", d.Files, d.Digest, maxNumber, 2*digestSize)
	}
	return nil
}

// pick returns the files of a shard, sorted by name, and of what all are. Files go to shards by size, the largest first, and each to
// the one that has least so far. What cannot be read goes to the first.
func (s Shard) pick(all []sized) ([]candidate, Division) {
	slices.SortFunc(all, func(a, b sized) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.name, b.name))
	})
	of := division(all)
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
			own = append(own, f.candidate)
		}
	}
	slices.SortFunc(own, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	return own, of
}

// loads are shards, of which the first has least.
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
