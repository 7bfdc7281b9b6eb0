package elffile

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// ErrBudget is the cause of the error of an input that would take too much work.
var ErrBudget = errors.New("more work than its size justifies")

// A Budget bounds the work on an input: an ELF file, or an archive with its members. The unit is about a nanosecond of
// processor time on a machine of 2026; code that spends has a constant with its cost. A nil Budget has no bound.
//
// All work that can be large for a small input spends from it. Work in proportion to the input's size costs less than
// the budget has for its bytes.
type Budget struct {
	size int64
	left atomic.Int64
}

// The budget of any input, and for each of its bytes. An input of 10 MB has 4.2 s.
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

// Spend takes n times the cost from the budget. If not enough is left, it takes nothing and returns an error.
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
	return fmt.Errorf("%w: %d bytes of input; if it is sound, convert its parts one by one", ErrBudget, b.size)
}
