// Package bar draws a progress bar on a terminal: a label, how much is done, and how long that took and the rest will
// take. It is drawn whenever something changes, and can be removed and drawn again, for what is printed between.
package bar

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// A Bar is one line of a terminal. It is for one goroutine at a time.
type Bar struct {
	w           io.Writer
	total, done int
	label       atomic.Value // a string, read while the bar is drawn
	start       time.Time
	shown       *shown // or nil
}

// shown is a bar that is on the terminal.
type shown struct {
	container *mpb.Progress
	bar       *mpb.Bar
	refresh   chan any      // draws the bar again
	drawn     chan struct{} // gets something each time that the bar is drawn
	ended     chan any      // gets something when the terminal cannot be written to
}

// New returns a bar for total things to be done, which is not drawn yet. Errors of the terminal are not reported.
func New(w io.Writer, total int) *Bar {
	b := &Bar{w: w, total: total, start: time.Now()}
	b.label.Store("")
	return b
}

// Describe changes the label.
func (b *Bar) Describe(label string) {
	b.label.Store(label)
	b.draw()
}

// Set says how much is done. When all is, the bar disappears.
func (b *Bar) Set(done int) {
	b.done = done
	b.draw()
}

// Add says how much more is done.
func (b *Bar) Add(n int) { b.Set(b.done + n) }

// removal is how often a bar is drawn until it has gone: twice as it ended, and once without it.
const removal = 3

// Clear removes the bar until it is drawn again.
func (b *Bar) Clear() {
	s := b.shown
	if s == nil {
		return
	}
	b.shown = nil
	s.bar.Abort(true)
	for range removal {
		s.draw()
	}
	s.container.Shutdown()
}

// draw replaces the bar on the terminal.
func (b *Bar) draw() {
	if b.done >= b.total {
		b.Clear()
		return
	}
	if b.shown == nil {
		b.shown = b.show()
	}
	b.shown.bar.SetCurrent(int64(b.done))
	if b.shown.draw() {
		b.shown.wait()
	}
}

// show makes a bar that is not drawn yet.
func (b *Bar) show() *shown {
	s := &shown{refresh: make(chan any), drawn: make(chan struct{}, removal), ended: make(chan any, 1)}
	s.container = mpb.New(mpb.WithOutput(b.w), mpb.WithManualRefresh(s.refresh), mpb.WithShutdownNotifier(s.ended))
	s.bar = s.container.New(int64(b.total), mpb.BarStyle().Lbound("|").Filler("█").Tip("█").Padding(" ").Rbound("|"),
		mpb.PrependDecorators(
			decor.Any(func(decor.Statistics) string {
				s.drawn <- struct{}{}
				return b.label.Load().(string)
			}),
			decor.NewPercentage("%d", decor.WC{W: len(" 100%")}),
		),
		mpb.AppendDecorators(
			decor.CountersNoUnit("(%d/%d)"),
			decor.Name(" ["),
			decor.NewElapsed(decor.ET_STYLE_GO, b.start),
			decor.Name(":"),
			decor.NewAverageETA(decor.ET_STYLE_GO, b.start, nil),
			decor.Name("]"),
		))
	return s
}

// draw asks for the bar to be drawn, and reports whether that can be done.
func (s *shown) draw() bool {
	select {
	case s.refresh <- time.Now():
		return true
	case e := <-s.ended:
		s.ended <- e // for the next time
		return false
	}
}

// wait waits until the bar was drawn: the labels of small files would not be seen otherwise.
func (s *shown) wait() {
	select {
	case <-s.drawn:
	case e := <-s.ended:
		s.ended <- e
	}
}
