package survey

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
)

// A Shard is a part of a survey, so that machines can share the work. The zero value is the whole survey.
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

// has reports whether a file belongs to the shard. It depends only on the name, so that adding or removing other files
// does not move it.
func (s Shard) has(name string) bool {
	h := fnv.New64a()
	io.WriteString(h, name)
	return s.Of <= 1 || h.Sum64()%uint64(s.Of) == uint64(s.Index-1)
}
