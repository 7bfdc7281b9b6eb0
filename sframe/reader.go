package sframe

import "encoding/binary"

// A Reader reads the FREs of many FDEs, and numbers the distinct rows. A section has few of them.
type Reader struct {
	Rows []Row // by number

	s       *Section
	numbers [2]map[string]uint32 // by the bytes of rows, in regular and in flexible FDEs
	recent  [1 << recentBits]recentRow
}

// A Ref is an FRE that refers to its row by number.
type Ref struct {
	Start uint32 // as in FRE
	Row   uint32 // index of Reader.Rows
}

// A recentRow is a row of up to maxRecent bytes: the lower bytes of key. The highest byte of key is the type of the FDE
// plus 1.
type recentRow struct {
	key    uint64
	number uint32
}

const (
	recentBits = 10
	maxRecent  = 7
)

// NewReader returns a Reader of the section's FREs.
func (s *Section) NewReader() *Reader {
	return &Reader{s: s, numbers: [2]map[string]uint32{{}, {}}}
}

// Refs appends the i-th FDE's FREs to buf and returns both.
func (r *Reader) Refs(i int, buf []Ref) (FDE, []Ref, error) {
	d, l := r.s.fde(r.s.entry(i))
	if r.s.outermost(&d, &l) {
		n, _ := r.number([]byte{0}, &d)
		return d, append(buf, Ref{0, n}), nil
	}
	w := r.s.walk(&d, &l)
	width, typed := w.width, uint64(1)<<(8*maxRecent)
	if d.Flexible {
		typed *= 2
	}
	next, data := uint32(0), w.s.data[w.off:]
	for range l.Num {
		// Most rows are small and already known.
		var key uint64
		var found *recentRow
		if len(data) >= width+8 {
			bytes := binary.LittleEndian.Uint64(data[width:])
			if size := RowSize(byte(bytes)); size <= maxRecent {
				start := uint32(data[0])
				if width > 1 {
					start = w.s.codec.unsigned(data, width)
				}
				key = bytes&(1<<(8*size)-1) | typed
				found = &r.recent[key*0x9e3779b97f4a7c15>>(64-recentBits)]
				if found.key == key && start >= next && start < w.limit {
					buf = append(buf, Ref{start, found.number})
					data = data[width+size:]
					next = start + 1
					continue
				}
			}
		}
		w.off, w.next = len(w.s.data)-len(data), next
		start, b, err := w.fre()
		if err != nil {
			return d, buf, err
		}
		number, what := r.number(b, &d)
		if what != "" {
			return d, buf, w.wrong(b, what)
		}
		buf = append(buf, Ref{start, number})
		data, next = w.s.data[w.off:], w.next
		if found != nil {
			*found = recentRow{key, number}
		}
	}
	return d, buf, nil
}

// number returns the number of the row at the start of b, or its error.
func (r *Reader) number(b []byte, d *FDE) (uint32, string) {
	numbers := r.numbers[0]
	if d.Flexible {
		numbers = r.numbers[1]
	}
	key := b[:min(RowSize(b[0]), len(b))]
	if n, ok := numbers[string(key)]; ok {
		return n, ""
	}
	row, _, what := r.s.codec.row(b, d.Flexible)
	if what != "" {
		return 0, what
	}
	n := uint32(len(r.Rows))
	r.Rows, numbers[string(key)] = append(r.Rows, row), n
	return n, ""
}
