package survey

import (
	"slices"
	"sync"
)

// worst keeps the first values in an order, one of those that are equal. What it has does not depend on the order in which
// they are added.
type worst[T any] struct {
	max  int
	cmp  func(a, b *T) int
	kept []T
}

func (w *worst[T]) add(v T) {
	i, same := slices.BinarySearchFunc(w.kept, v, func(a, b T) int { return w.cmp(&a, &b) })
	if i == w.max || same {
		return
	}
	if len(w.kept) == w.max {
		w.kept = w.kept[:w.max-1]
	}
	w.kept = slices.Insert(w.kept, i, v)
}

// list returns the values in their order; it is not nil.
func (w *worst[T]) list() []T { return append([]T{}, w.kept...) }

// maxCFI is how much CFI is worked on at a time, in bytes. What is made of it takes about
// three times as much. A file with more is worked on alone.
const maxCFI = 48 << 20

// A budget bounds what is worked on at a time.
type budget struct {
	mu   sync.Mutex
	cond *sync.Cond
	max  uint64
	free uint64
}

func newBudget(most uint64) *budget {
	b := &budget{max: most, free: most}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// take waits for n bytes and returns a function that gives them back.
func (b *budget) take(n uint64) (release func()) {
	n = min(n, b.max)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.free < n {
		b.cond.Wait()
	}
	b.free -= n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.free += n
		b.cond.Broadcast()
	}
}
