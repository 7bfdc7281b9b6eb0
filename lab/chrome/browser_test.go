// Package chrome tests pages in Chromium.
package chrome

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cfi2sframe/internal/testkit/peer"
)

// Start starts a browser without a window, in a home of its own.
func Start(t *testing.T) context.Context {
	t.Helper()
	path := peer.Look(t, "chromium")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.NoFirstRun,
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the browser, whose home goes next
			t.Errorf("browser: %v", err)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// A Tab shows a page.
type Tab struct {
	*testing.T
	Ctx context.Context

	mu    sync.Mutex
	wrong []string // errors of the console, and exceptions
	asked []string // what was loaded
}

// Open opens the page at a path. When the test ends, there must have been no error,
// and nothing else loaded.
func Open(t *testing.T, browser context.Context, path string) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	b := &Tab{T: t, Ctx: ctx}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, w := range b.wrong {
			t.Errorf("page: %s", w)
		}
		if len(b.asked) != 1 || b.asked[0] != "file://"+path {
			t.Errorf("loaded: %q", b.asked)
		}
		cancel()
	})
	if err := chromedp.Listen(ctx, b.event); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.Resize(1200)
	b.Do(chromedp.Navigate("file://" + path))
	return b
}

// event notes what must not happen.
func (b *Tab) event(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		b.wrong = append(b.wrong, fmt.Sprintf("console: %+v", ev.Args))
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("exception: %+v", ev.ExceptionDetails))
	case *log.EventEntryAdded:
		b.wrong = append(b.wrong, "log: "+ev.Entry.Text)
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, ev.Request.URL)
	}
}

// Loaded expects that nothing was loaded but the page at a path, any number of times.
func (b *Tab) Loaded(path string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.asked {
		if url != "file://"+path {
			b.Errorf("loaded: %s", url)
		}
	}
	b.asked = b.asked[:1]
}

// Forget forgets that other pages were loaded, after a link to one was followed.
func (b *Tab) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = b.asked[:1]
}

// Do takes steps.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.Ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](b *Tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.Ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Await waits until an expression is true, also on a page that comes next.
func (b *Tab) Await(expression string) {
	b.Helper()
	var err error
	for range 500 {
		var done bool
		if done, err = chromedp.Run(b.Ctx, chromedp.Evaluate[bool](expression)); done {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Errorf("%s is not true: %v", expression, err)
}

// Resize gives the window a width.
func (b *Tab) Resize(width int64) {
	b.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1,
		Mobile: width < 600}
	if _, err := chromedp.Call(b.Ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		b.Fatal(err)
	}
}

// Rows returns the cells of the rows that a table shows.
func (b *Tab) Rows(table string) [][]string {
	b.Helper()
	return Eval[[][]string](b, fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].map(tr => [...tr.cells].map(c => c.textContent))`, table))
}

// Count returns what stands beside the filter of a table.
func (b *Tab) Count(table string) string {
	b.Helper()
	return Eval[string](b, fmt.Sprintf(`document.querySelector("#%s .count").value`, table))
}

// Last turns to the last page of a table, if it has several, and returns the last row there.
func (b *Tab) Last(table string) []string {
	b.Helper()
	Eval[any](b, fmt.Sprintf(`document.querySelector("#%s [data-page=last]").click()`, table))
	rows := b.Rows(table)
	return rows[len(rows)-1]
}

// Search types into the filter of a table, in place of what is there.
func (b *Tab) Search(table, text string) {
	b.Helper()
	Eval[any](b, fmt.Sprintf(`document.querySelector("#%s input").focus(), document.activeElement.select()`, table))
	if text == "" {
		b.Do(chromedp.KeyEvent(kb.Backspace))
	} else if _, err := chromedp.Call(b.Ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		b.Fatal(err)
	}
}

// CardColumns returns how many cards of the summary are in a row.
func (b *Tab) CardColumns() int {
	b.Helper()
	return Eval[int](b, `getComputedStyle(document.querySelector(".cards")).gridTemplateColumns.split(" ").length`)
}

// Shown counts the rows of a table that can be seen.
func (b *Tab) Shown(table string) int {
	b.Helper()
	const shown = `[...document.querySelectorAll("#%s tbody tr")].filter(tr => tr.checkVisibility()).length`
	return Eval[int](b, fmt.Sprintf(shown, table))
}

// Colour returns a colour of the style, by its name.
func (b *Tab) Colour(name string) color.RGBA {
	b.Helper()
	var c color.RGBA
	const value = `getComputedStyle(document.documentElement).getPropertyValue("--%s").trim()`
	text := Eval[string](b, fmt.Sprintf(value, name))
	if _, err := fmt.Sscanf(text, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
		b.Fatalf("colour %s: %q: %v", name, text, err)
	}
	return c
}

// Picture returns a picture of the window.
func (b *Tab) Picture() image.Image {
	b.Helper()
	shot, err := chromedp.Run(b.Ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.Fatal(err)
	}
	return picture
}

// Pixels counts the pixels of a colour in the first element that a selector selects, without its edge.
func (b *Tab) Pixels(selector string, want color.RGBA) (n int) {
	b.Helper()
	const inside = `(e => { e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect();
		return [r.left + 3, r.top + 3, r.right - 3, r.bottom - 3].map(Math.round) })(document.querySelector(%q))`
	at := Eval[[]int](b, fmt.Sprintf(inside, selector))
	want.A = 0xff
	picture := b.Picture()
	for y := at[1]; y < at[3]; y++ {
		for x := at[0]; x < at[2]; x++ {
			if color.RGBAModel.Convert(picture.At(x, y)) == color.Color(want) {
				n++
			}
		}
	}
	return n
}

// Widths expects the page to be no wider than windows of all sizes, from phones to large screens, and on a desk
// the tables no wider than their places.
func (b *Tab) Widths() {
	b.Helper()
	for _, width := range []int64{360, 420, 768, 1280, 1920} {
		b.Resize(width)
		if got := Eval[int64](b, `document.documentElement.scrollWidth`); got > width {
			b.Errorf("the page has a width of %d at %d", got, width)
		}
		if width < 1280 { // there, tables are moved under their places
			continue
		}
		wide := Eval[[]string](b, `[...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth).map(s => s.ariaLabel + ": " + s.scrollWidth + " of " + s.clientWidth)`)
		for _, w := range wide {
			b.Errorf("table at %d: %s", width, w)
		}
	}
	b.Resize(1200)
}
