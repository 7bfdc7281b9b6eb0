package report

import "github.com/ianlancetaylor/demangle"

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

// A namer puts names of symbols into words.
type namer struct {
	room    *Room
	known   map[string]string // demangled
	omitted int               // names for which there was no room
	tangled bool              // symbols cover so many gaps each that some were not looked at
}

func newNamer(room *Room) *namer { return &namer{room: room, known: make(map[string]string)} }

// names returns a symbol's name as the source has it, for C++ and Rust, and the mangled
// name; that is "" for others, whose name stays. It returns "" twice if there is no room left.
func (n *namer) names(symbol string) (name, mangled string) {
	if n.room.names <= 0 && symbol != "" {
		n.omitted++
		return "", ""
	}
	name, ok := n.known[symbol]
	if !ok {
		name = demangled(symbol)
		n.known[symbol] = name
	}
	n.room.names -= len(symbol) + len(name)
	if name == symbol {
		return name, ""
	}
	return name, symbol
}

// notes returns what has no name, for Coverage.Notes.
func (n *namer) notes() []string {
	var out []string
	if n.omitted > 0 {
		out = append(out, "names of "+plural(n.omitted, "function")+", because all names together are too long")
	}
	if n.tangled {
		out = append(out, "names of some functions, because symbols overlap too much")
	}
	return out
}

// maxMangled is how long a name may be to be demangled, in bytes: the time that takes
// grows faster than the length.
const maxMangled = 4096

// demangled returns a symbol's name as the source has it.
func demangled(symbol string) string {
	if len(symbol) > maxMangled {
		return symbol
	}
	return demangle.Filter(symbol, demangle.MaxLength(14))
}
