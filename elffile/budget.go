package elffile

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// ErrBudget is the cause of errors for inputs that would take too much work.
var ErrBudget = errors.New("too much work for an input of this size")

// A Budget bounds the work on an input: an ELF file, or an archive with its members. The unit is about a nanosecond of
// CPU time on a 2026 machine; each caller of Spend defines its cost as a constant. A nil Budget has no bound.
//
// Work that can be large for a small input must spend from the budget. In total, the work that is proportional to the
// size of the input must cost less than perByte per byte.
type Budget struct {
	size int64
	left atomic.Int64
}

// The budget is anyInput plus perByte for each byte of the input. An input of 10 MB gets 4.2 s.
const (
	anyInput = 1_200_000_000
	perByte  = 300
)

// NewBudget returns the budget of an input of the given size in bytes.
func NewBudget(size int64) *Budget {
	b := &Budget{size: max(size, 0)}
	b.left.Store(anyInput + perByte*min(b.size, 1<<50))
	return b
}

// Size returns the size of the input in bytes.
func (b *Budget) Size() uint64 {
	if b == nil {
		return math.MaxUint64
	}
	return uint64(b.size)
}

// Spend subtracts n times the cost from the budget. If not enough is left, it subtracts nothing and returns an error.
func (b *Budget) Spend(cost int64, n uint64) error {
	if b == nil {
		return nil
	}
	const most = 1 << 40
	sum := cost * int64(min(n, most))
	if b.left.Add(-sum) >= 0 {
		return nil
	}
	b.left.Add(sum)
	return fmt.Errorf("%w (%d bytes); if it is valid, convert its parts separately", ErrBudget, b.size)
}
