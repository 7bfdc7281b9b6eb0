package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
)

// A tally counts finished files.
type tally struct {
	done int                    // changed files
	stay map[convert.Reason]int // unchanged files
}

// add counts a file.
func (t *tally) add(j *files.Job) {
	if j.Result == nil || j.Result.Stays == "" {
		t.done++
		return
	}
	t.stays(j.Result.Stays)
}

// stays counts an unchanged file.
func (t *tally) stays(why convert.Reason) {
	if t.stay == nil {
		t.stay = make(map[convert.Reason]int)
	}
	t.stay[why]++
}

// skipped returns how many files are unchanged, except up-to-date ones.
func (t *tally) skipped() int {
	n := 0
	for why, files := range t.stay {
		if why != convert.Current {
			n += files
		}
	}
	return n
}

// text sums up all files. Files that are not counted are called rest.
func (t *tally) text(all int, rest string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d files: %d done, ", all, t.done)
	kept := t.skipped() + t.stay[convert.Current]
	if kept > 0 {
		fmt.Fprintf(&b, "%d kept as they are, ", kept)
	}
	fmt.Fprintf(&b, "%d %s\n", all-t.done-kept, rest)
	b.WriteString(reasons("kept as they are", t.stay, convert.Reason.Text))
	return b.String()
}

// reasons lists counts for each reason, the most frequent first.
func reasons[R ~string](what string, counts map[R]int, text func(convert.Reason) string) string {
	var b strings.Builder
	most := func(x, y R) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) }
	for _, why := range slices.SortedFunc(maps.Keys(counts), most) {
		fmt.Fprintf(&b, "  %s: %d (%s)\n", what, counts[why], text(convert.Reason(why)))
	}
	return b.String()
}
