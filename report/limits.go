package report

// Bounds of the lists in all reports of a run together, which are in memory: a number for any run, and one more for
// some bytes of the files. Names can be much longer in a report than in a file: many gaps have the same name, and
// mangled names abbreviate.
const (
	anyGaps      = 1 << 16
	bytesPerGap  = 128 // of the files
	anyNames     = 16 << 20
	bytesPerName = 4 // of the files, for each byte of names
	anyErrors    = 1000
	bytesPerErr  = 1024
)

// Limits say how much may still be added to the lists of reports.
type Limits struct {
	gaps  int
	names int // bytes
	errs  int // malformed records
}

// NewLimits returns the limits before the first file.
func NewLimits() *Limits { return &Limits{anyGaps, anyNames, anyErrors} }

// Grow adds to the limits for a file of the given size in bytes.
func (l *Limits) Grow(size int64) {
	l.gaps += int(size / bytesPerGap)
	l.names += int(size / bytesPerName)
	l.errs += int(size / bytesPerErr)
}

// Full reports whether no more gaps are listed.
func (l *Limits) Full() bool { return l.gaps <= 0 }

// take returns how many of n can be listed, and subtracts them from the limit.
func take(limit *int, n int) int {
	n = min(n, *limit)
	*limit -= n
	return n
}
