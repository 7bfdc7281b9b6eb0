package bar

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// columns is how wide what is no terminal is taken for.
const columns = 80

// A screen shows what a terminal would.
type screen struct {
	mu     sync.Mutex
	t      *testing.T
	lines  []string
	at     int // the line that the cursor is in the first column of
	failed bool
}

var (
	text = regexp.MustCompile(`^[^\x1b\n]+\n`)
	up   = regexp.MustCompile(`^\x1b\[(\d+)A`)
	wipe = regexp.MustCompile(`^\x1b\[J`)

	seconds = regexp.MustCompile(`\ds([:\]])`)
)

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return 0, errors.New("the terminal is gone")
	}
	for rest := string(b); rest != ""; {
		var n int
		if m := text.FindString(rest); m != "" {
			s.lines = append(s.lines[:s.at], strings.TrimRight(m, " \n"))
			s.at++
			n = len(m)
		} else if m := up.FindStringSubmatch(rest); m != nil {
			lines, err := strconv.Atoi(m[1])
			if err != nil || lines > s.at {
				s.t.Errorf("the cursor goes %s up from line %d", m[1], s.at)
				return 0, io.ErrShortWrite
			}
			s.at -= lines
			n = len(m[0])
		} else if m := wipe.FindString(rest); m != "" {
			s.lines = s.lines[:s.at]
			n = len(m)
		} else {
			s.t.Errorf("%q is written", rest)
			return 0, io.ErrShortWrite
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// now returns what the screen shows.
func (s *screen) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// expect waits until the screen shows something. The last digit of seconds is taken for 0, as this may take some.
func (s *screen) expect(want string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); seconds.ReplaceAllString(s.now(),
		"0s$1") != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the screen shows\n%q; expected\n%q", s.now(), want)
		}
	}
}

// line returns a bar as wide as the screen, with so many full columns.
func line(before string, done, total int, after string) string {
	width := columns - len(" || ") - len(after)
	for _, r := range before {
		width--
		if r >= '一' { // Chinese characters are two columns wide
			width--
		}
	}
	full := (width*done + total/2) / total
	return before + " |" + strings.Repeat("█", full) + strings.Repeat(" ", width-full) + "| " + after
}

func TestScreen(t *testing.T) {
	s := &screen{t: t}
	b := New(s, 3)
	b.Clear()
	s.expect("")
	b.Describe("first name")
	s.expect(line("first name   0%", 0, 3, "(0/3) [0s:0s]"))
	b.Set(1)
	s.expect(line("first name  33%", 1, 3, "(1/3) [0s:0s]"))
	b.Describe("größe") // letters of two bytes
	s.expect(line("größe  33%", 1, 3, "(1/3) [0s:0s]"))
	b.Set(2)
	s.expect(line("größe  67%", 2, 3, "(2/3) [0s:0s]"))
	// What is printed after it has gone has the screen for itself, at once.
	b.Clear()
	if got := s.now(); got != "" {
		t.Fatalf("the screen shows %q after Clear", got)
	}
	if _, err := io.WriteString(s, "a report\n"); err != nil {
		t.Fatal(err)
	}
	b.Describe("next")
	s.expect("a report\n" + line("next  67%", 2, 3, "(2/3) [0s:0s]"))
	b.Set(3)
	if got := s.now(); got != "a report" {
		t.Errorf("the screen shows %q when all is done", got)
	}
	b.Describe("after the end")
	b.Clear()
	if got := s.now(); got != "a report" {
		t.Errorf("the screen shows %q after the end", got)
	}
}

// TestTimes draws a bar when a third has been done, in 62 seconds.
func TestTimes(t *testing.T) {
	s := &screen{t: t}
	b := New(s, 3)
	b.start = b.start.Add(-62 * time.Second)
	b.Set(1)
	s.expect(line("  33%", 1, 3, "(1/3) [1m0s:2m0s]"))
	b.Clear()
	// Taken away and drawn again, it has not begun anew.
	b.Describe("x")
	s.expect(line("x  33%", 1, 3, "(1/3) [1m0s:2m0s]"))
	b.Clear()
}

// TestGone goes on when the terminal cannot be written to.
func TestGone(t *testing.T) {
	s := &screen{t: t}
	b := New(s, 10)
	b.Set(1)
	s.expect(line("  10%", 1, 10, "(1/10) [0s:0s]"))
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 10 {
			b.Set(n + 1)
			if n%4 == 2 {
				b.Clear()
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the bar waits for a terminal that is gone")
	}
}
