package generate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cellsOf divides a line of hand.txt or refuse.txt.
func cellsOf(line string) []string {
	cells := strings.Split(line, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// is reports whether a form is in a list, by its format, its machine or both.
func (f form) is(list string) bool {
	return list == "*" || slices.ContainsFunc(strings.Fields(list), func(w string) bool {
		return w == f.format || w == f.name || w == f.String()
	})
}

// number reads a number or an address.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		var u uint64
		u, err = strconv.ParseUint(s, 0, 64)
		n = int64(u)
	}
	if err != nil {
		panic(err)
	}
	return n
}

// parse returns the functions of a line: START [OPTION...]: STARTS of rows; hand.txt and refuse.txt describe them.
func (m *maker) parse(text string) (out []function) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, "; ") {
		head, starts, _ := strings.Cut(part, ":")
		options := strings.Fields(head)
		d := function{start: uint64(number(options[0])), size: 0x20, width: 1}
		for i, start := range strings.Fields(starts) {
			word := int64(8 * (i + 1))
			start, other, found := strings.Cut(start, "/")
			if found {
				word = number(other)
			}
			d.rows = append(d.rows, m.plain(uint32(number(start)), sp, 1, word))
		}
		for _, option := range options[1:] {
			m.option(&d, option)
		}
		out = append(out, d)
	}
	return out
}

// option changes a function.
func (m *maker) option(d *function, option string) {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "size":
		d.size = uint32(number(value))
	case "width":
		d.width = int(number(value))
	case "block":
		d.mask, d.rep = true, byte(number(value))
	case "rep":
		d.rep = byte(number(value))
	case "share":
		d.share = true
	case "padding":
		d.padding = uint16(number(value))
	case "flexible":
		d.flexible = true
	case "words": // of one row
		r := row{base: sp, size: 1}
		if d.flexible {
			r.base = 0
		}
		for word := range strings.SplitSeq(value, ",") {
			n := int64(m.sp)<<3 | 1
			if offset, ok := strings.CutPrefix(word, "sp"); !ok {
				n = number(word)
			} else if offset != "" {
				n += number(offset)
			}
			r.words = append(r.words, n)
		}
		d.rows = []row{r}
	default:
		panic(fmt.Sprintf("option %q", option))
	}
}
