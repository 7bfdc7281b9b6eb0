package elffile

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// ErrBudget is what is behind the error of an input that would take too much work.
var ErrBudget = errors.New("more work than its size justifies")

// A Budget bounds the work on an input: an ELF file, an archive with its members, or a package with its files. The unit is a
// nanosecond of processor time, about, on a machine of 2026. A nil Budget has no bound.
//
// Everything that can take much more than the size of the input suggests spends from it. So it does not matter how often an input
// has that, or at which of its levels. What an input just has, byte for byte, costs less than it gets for its bytes.
type Budget struct {
	size     int64
	left     atomic.Int64
	exceeded atomic.Bool
}

// What an input gets: so much whatever it is, and more for each of its bytes. An input of 10 MB has 4.2 s. Linux's debug package
// has 750 MB and unpacks to seven times as much, which costs 56 ns for each of its bytes.
const (
	anyInput = 1_200_000_000
	perByte  = 300
)

// What work costs, measured in 2026-11.
const (
	CostUnpacked = 8       // a byte that comes out of a part of a package: of zeros, which xz has packed
	CostSection  = 32      // a byte of a section, decompressed; 4 for time, the rest for memory
	CostCFI      = 25      // a byte of call frame information, on its whole way, and
	CostProgram  = 250     // a byte of instructions that no other function has
	CostVarying  = 250     // a byte of code whose CFA depends on the pc, or of expressions
	CostStub     = 250     // a byte of a PLT without CFI
	CostRow      = 40      // a row of an .sframe that is compared
	CostEntry    = 4_000   // of an archive or a package
	CostHeaders  = 50_000  // an ELF file in one, and
	CostFile     = 250_000 // if it is written; half of that is what the system takes
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

// Spend takes n pieces of work from the budget. If there is not enough, it takes nothing, and returns an error.
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
	b.exceeded.Store(true)
	return b.Exceeded()
}

// Exceeded returns an error if there was not enough at any time. That does not depend on the order in which goroutines spend.
func (b *Budget) Exceeded() error {
	if !b.exceeded.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d bytes of input; if it is sound, convert what is in it one by one", ErrBudget, b.size)
}
