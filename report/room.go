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

// A Room says how much may still be added to reports.
type Room struct {
	gaps  int // that are listed
	names int // bytes of names in all lists
	errs  int // malformed records
}

// NewRoom returns the bounds without any file.
func NewRoom() *Room { return &Room{anyGaps, anyNames, anyErrors} }

// Grow adds to the bounds for a file of the given size in bytes. r may be nil.
func (r *Room) Grow(size int64) {
	if r != nil {
		r.gaps += int(size / bytesPerGap)
		r.names += int(size / bytesPerName)
		r.errs += int(size / bytesPerErr)
	}
}

// Full reports whether no more gaps are listed.
func (r *Room) Full() bool { return r != nil && r.gaps <= 0 }

// take returns how many of n can be listed, and subtracts them from the bound.
func take(room *int, n int) int {
	n = min(n, *room)
	*room -= n
	return n
}
