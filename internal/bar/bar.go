// Package bar draws a progress bar on a terminal: a label, how much is done, and how long that took and
// how long the rest is going to take. Well-known packages for that start with the program, and some bring an HTTP
// server along; this one costs nothing until a bar is drawn.
package bar

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rivo/uniseg"
)

// A Bar is one line of a terminal. It is for one goroutine at a time.
type Bar struct {
	w           io.Writer
	columns     func() int // of the terminal
	total, done int
	label       string
	start       time.Time
	drawn       int // columns that are to be cleared
}

// New returns a bar for so many things to be done, which is drawn as soon as there is something to show. A
// terminal that cannot be written to is no reason to stop: errors are not reported.
func New(w io.Writer, columns func() int, total int) *Bar {
	return &Bar{w: w, columns: columns, total: total, start: time.Now()}
}

// Describe changes what is in front of the bar.
func (b *Bar) Describe(label string) {
	b.label = label
	b.draw()
}

// Set says how much is done. When all is, the bar disappears.
func (b *Bar) Set(done int) {
	b.done = done
	b.draw()
}

// Add says how much more is done.
func (b *Bar) Add(n int) { b.Set(b.done + n) }

// Clear makes the bar disappear until it is drawn again.
func (b *Bar) Clear() {
	if b.drawn > 0 {
		_, _ = io.WriteString(b.w, b.blank())
		b.drawn = 0
	}
}

// blank is what overwrites the bar.
func (b *Bar) blank() string { return "\r" + strings.Repeat(" ", b.drawn) + "\r" }

// draw draws the bar in place of what is there.
func (b *Bar) draw() {
	if b.done >= b.total {
		b.Clear()
		return
	}
	line := b.line(time.Since(b.start))
	blank := ""
	if b.drawn > 0 {
		blank = b.blank()
	}
	_, _ = io.WriteString(b.w, blank+"\r"+line)
	b.drawn = uniseg.StringWidth(line)
}

// line is the bar after some time. It leaves the last column free, so that no terminal begins another
// line.
func (b *Bar) line(elapsed time.Duration) string {
	percent := 100 * b.done / b.total
	count := fmt.Sprintf("(%d/%d)", b.done, b.total)
	var rest time.Duration
	if b.done > 0 {
		rest = time.Duration(elapsed.Seconds() / float64(b.done) * float64(b.total-b.done) * float64(time.Second))
	}
	times := fmt.Sprintf("[%v:%v]", elapsed.Truncate(time.Second), rest.Truncate(time.Second))
	width := max(0, b.columns()-uniseg.StringWidth(b.label)-len("  50% || ")-len(count)-len(" ")-len(times)-1)
	full := percent * width / 100
	return fmt.Sprintf("%s%4d%% |%s%s| %s %s", b.label, percent, strings.Repeat("█", full), strings.Repeat(" ", width-full), count, times)
}
