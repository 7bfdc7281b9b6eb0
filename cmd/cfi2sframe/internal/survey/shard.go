package survey

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
)

// A Shard is one of several parts of a survey, which machines can make at the same time. The zero value is all of it.
type Shard struct{ Index, Of int } // Index counts from 1

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

// has reports whether a file belongs to the shard. Only its name decides, so that a file is in one shard even if other
// files are added or removed while machines work.
func (s Shard) has(name string) bool {
	h := fnv.New64a()
	io.WriteString(h, name)
	return s.Of <= 1 || h.Sum64()%uint64(s.Of) == uint64(s.Index-1)
}
