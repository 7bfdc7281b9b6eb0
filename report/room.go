package report

// What is kept for reports at most, of all files of a run together: so much, and some more for each
// byte of the files. Lists are kept in memory, and names can be many times as long in a report as
// they are in a file: many gaps have the same one, and mangled ones abbreviate.
const (
	anyGaps      = 1 << 16
	bytesPerGap  = 128 // of the files
	anyNames     = 16 << 20
	bytesPerName = 4 // of the files, for each byte of names
	anyErrors    = 1000
	bytesPerErr  = 1024
)

// A Room says how much may still be kept for reports.
type Room struct {
	gaps  int // that are listed
	names int // bytes of names in all lists
	errs  int // malformed records
}

// NewRoom returns the room that there is for any file.
func NewRoom() *Room { return &Room{anyGaps, anyNames, anyErrors} }

// Grow makes more room for a file of the given size in bytes. There may be no Room.
func (r *Room) Grow(size int64) {
	if r != nil {
		r.gaps += int(size / bytesPerGap)
		r.names += int(size / bytesPerName)
		r.errs += int(size / bytesPerErr)
	}
}

// Full reports whether no more gaps are listed.
func (r *Room) Full() bool { return r != nil && r.gaps <= 0 }

// take returns how many of n can be listed, of which there is so much room.
func take(room *int, n int) int {
	n = min(n, *room)
	*room -= n
	return n
}
