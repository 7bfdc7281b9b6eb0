package survey

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
)

// A Shard is one part of a survey that is split between machines. The zero value is the whole survey.
type Shard struct{ Index, Of int } // Index counts from 1

// maxShards is the largest number of shards.
const maxShards = 1 << 20

// ParseShard parses a shard of the form I/N.
func ParseShard(s string) (Shard, error) {
	i, n, _ := strings.Cut(s, "/")
	index, errI := strconv.Atoi(i)
	of, errN := strconv.Atoi(n)
	if errI != nil || errN != nil || index < 1 || index > of || of > maxShards {
		return Shard{}, fmt.Errorf("%s is not I/N, where 1 <= I <= N <= %d", strconv.Quote(s), maxShards)
	}
	return Shard{index, of}, nil
}

// contains reports whether a file belongs to the shard. The shard of a file depends only on its name, so adding or
// removing other files does not change it.
func (s Shard) contains(name string) bool {
	h := fnv.New64a()
	io.WriteString(h, name)
	return s.Of <= 1 || h.Sum64()%uint64(s.Of) == uint64(s.Index-1)
}
