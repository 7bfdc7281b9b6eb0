package elffile

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// ErrBudget is the cause of the error of an input that would take too much work.
var ErrBudget = errors.New("more work than its size justifies")

// A Budget bounds the work on an input: an ELF file, an archive with its members, or a package with its files. The unit
// is about a nanosecond of processor time on a machine of 2026. A nil Budget has no bound.
//
// All work that can be large for a small input spends from it. Work in proportion to the input's size costs less than
// the budget has for its bytes.
type Budget struct {
	size     int64
	left     atomic.Int64
	exceeded atomic.Bool
}

// The budget of any input, and for each of its bytes. An input of 10 MB has 4.2 s. Linux's debug package has 750 MB and
// unpacks to seven times as much, which costs 56 ns for each of its bytes (2026-11).
const (
	anyInput = 1_200_000_000
	perByte  = 300
)

// Costs of work, measured in 2026-11.
const (
	CostUnpacked = 8       // a byte unpacked from a package, measured with zeros and xz
	CostSection  = 32      // a byte of a decompressed section; 4 for time, the rest for memory
	CostCFI      = 25      // a byte of call frame information, from reading to verification
	CostProgram  = 250     // a byte of instructions that only one function has
	CostVarying  = 250     // a byte of code whose CFA depends on the pc, or of expressions
	CostStub     = 250     // a byte of a PLT without CFI
	CostRow      = 40      // a row of a section that is compared
	CostEntry    = 4_000   // an entry of an archive or a package
	CostHeaders  = 50_000  // the headers of an ELF file in one
	CostFile     = 250_000 // writing a file; half of it is the system's time
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
	b.exceeded.Store(true)
	return b.Exceeded()
}

// Exceeded returns an error if Spend returned one before. It does not depend on the order in which goroutines spend.
func (b *Budget) Exceeded() error {
	if !b.exceeded.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d bytes of input; if it is sound, convert its parts one by one", ErrBudget, b.size)
}
