package report

// Limits say how much may still be added to the lists in all reports of a run together, which are in memory. Names can
// be much longer in a report than in a file: many gaps have the same name, and mangled names abbreviate.
type Limits struct {
	gaps  int
	names int // bytes
	errs  int // malformed records
}

// NewLimits returns the limits before the first file.
func NewLimits() *Limits { return &Limits{gaps: 1 << 16, names: 16 << 20, errs: 1000} }

// Grow adds to the limits for a file of the given size in bytes.
func (l *Limits) Grow(size int64) {
	l.gaps += int(size / 128)
	l.names += int(size / 4)
	l.errs += int(size / 1024)
}

// Full reports whether no more gaps are listed.
func (l *Limits) Full() bool { return l.gaps <= 0 }

// take returns how many of n can be listed, and subtracts them from the limit.
func take(limit *int, n int) int {
	n = min(n, *limit)
	*limit -= n
	return n
}
