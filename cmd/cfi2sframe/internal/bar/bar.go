// Package bar draws a progress bar on a terminal: a label, how much is done, and how long that took and the rest will
// take. It is drawn whenever something changes, and can be removed and drawn again, for what is printed between.
package bar

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Bar is one line of a terminal, or nothing if it is nil. It is for one goroutine at a time.
type Bar struct {
	w           io.Writer // or nil after an error
	total, done int
	label       string
	start       time.Time
	drawn       bool
}

// New returns a bar for total things to be done, which is not drawn yet. Errors of the terminal are not reported.
func New(w io.Writer, total int) *Bar {
	return &Bar{w: w, total: total, start: time.Now()}
}

// Describe changes the label.
func (b *Bar) Describe(label string) {
	if b != nil {
		b.label = label
		b.draw()
	}
}

// Set says how much is done. When all is, the bar disappears.
func (b *Bar) Set(done int) {
	if b != nil {
		b.done = done
		b.draw()
	}
}

// Say draws a line instead of a bar, for work of unknown size.
func (b *Bar) Say(line string) {
	if b != nil {
		b.write(line + "\n")
		b.drawn = true
	}
}

// Clear removes the bar until it is drawn again.
func (b *Bar) Clear() {
	if b != nil && b.drawn {
		b.write("")
		b.drawn = false
	}
}

// draw replaces the bar on the terminal.
func (b *Bar) draw() {
	if b.done >= b.total {
		b.Clear()
		return
	}
	b.Say(b.line())
}

// erase moves the cursor to the line before it and erases everything from there (ECMA-48, CUU and ED).
const erase = "\x1b[1A\x1b[J"

// write replaces what is drawn.
func (b *Bar) write(text string) {
	if b.drawn {
		text = erase + text
	}
	if b.w != nil {
		if _, err := io.WriteString(b.w, text); err != nil {
			b.w = nil
		}
	}
}

// usualColumns is the width of a terminal of unknown size.
const usualColumns = 80

// line returns the bar, as wide as the terminal.
func (b *Bar) line() string {
	columns := usualColumns
	if f, ok := b.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			columns = width
		}
	}
	elapsed := time.Since(b.start)
	var left time.Duration
	if b.done > 0 {
		left = elapsed / time.Duration(b.done) * time.Duration(b.total-b.done)
	}
	before := fmt.Sprintf("%s%4.0f%%", b.label, 100*float64(b.done)/float64(b.total))
	after := fmt.Sprintf("(%d/%d) [%v:%v]", b.done, b.total, elapsed.Truncate(time.Second), left.Truncate(time.Second))
	width := columns - utf8.RuneCountInString(before) - len(" || ") - len(after)
	if width < 0 {
		text := []rune(before + " " + after)
		return string(text[:min(len(text), columns-1)]) + "…"
	}
	full := (width*b.done + b.total/2) / b.total
	return before + " |" + strings.Repeat("█", full) + strings.Repeat(" ", width-full) + "| " + after
}
