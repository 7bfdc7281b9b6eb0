package bar

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// seconds matches those of a duration with minutes. Busy machines take some.
var seconds = regexp.MustCompile(`m\d+s`)

// drawn returns a bar with done of three parts, which fills a line of 80 columns.
func drawn(before string, done int, after string) string {
	width := 80 - utf8.RuneCountInString(before) - len(" || ") - len(after)
	full := (width*done + 1) / 3
	after = seconds.ReplaceAllString(after, "m0s")
	return before + " |" + strings.Repeat("█", full) + strings.Repeat(" ", width-full) + "| " + after + "\n"
}

// TestBar compares what is written to the terminal.
func TestBar(t *testing.T) {
	var terminal strings.Builder
	b := New(&terminal, 3)
	b.start = b.start.Add(-62 * time.Second)
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{b.Clear, ""},
		{func() { b.Describe("größe") }, drawn("größe   0%", 0, "(0/3) [1m2s:0s]")},
		{func() { b.Set(1) }, erase + drawn("größe  33%", 1, "(1/3) [1m2s:2m4s]")},
		{b.Clear, erase},
		{b.Clear, ""},
		{func() { b.Describe("x") }, drawn("x  33%", 1, "(1/3) [1m2s:2m4s]")},
		{func() { b.Set(3) }, erase},
		{func() { b.Describe("after the end") }, ""},
		{func() { b.Say("scanning") }, "scanning\n"},
		{func() { b.Say("still scanning") }, erase + "still scanning\n"},
	} {
		terminal.Reset()
		tt.do()
		if got := seconds.ReplaceAllString(terminal.String(), "m0s"); got != tt.want {
			t.Errorf("%q is written; want %q", got, tt.want)
		}
	}
	var none *Bar
	none.Describe("x")
	none.Set(1)
	none.Say("x")
	none.Clear()
}

// A gone terminal cannot be written to.
type gone struct{ writes int }

func (g *gone) Write([]byte) (int, error) {
	g.writes++
	return 0, errors.New("the terminal is gone")
}

// TestGone expects no further writes after an error of the terminal.
func TestGone(t *testing.T) {
	var terminal gone
	b := New(&terminal, 10)
	b.Set(1)
	b.Set(2)
	b.Clear()
	if terminal.writes != 1 {
		t.Errorf("%d writes", terminal.writes)
	}
}
