package bar

import (
	"strings"
	"testing"
	"time"
)

// The lines are those of github.com/schollz/progressbar 3.19, which draws the same bar.
func TestLine(t *testing.T) {
	for _, test := range []struct {
		label       string
		done, total int
		elapsed     time.Duration
		columns     int
		want        string
	}{
		{"ls", 0, 4, 0, 80, "ls   0% |                                                       | (0/4) [0s:0s]"},
		{"ls", 1, 4, 0, 80, "ls  25% |█████████████                                          | (1/4) [0s:0s]"},
		{"cat", 1, 4, 0, 80, "cat  25% |█████████████                                         | (1/4) [0s:0s]"},
		{"cp", 3, 4, 0, 80, "cp  75% |█████████████████████████████████████████              | (3/4) [0s:0s]"},
		{"", 1, 10, 0, 60, "  10% |███                                 | (1/10) [0s:0s]"},
		{"", 9, 10, 0, 60, "  90% |████████████████████████████████    | (9/10) [0s:0s]"},
		// A third of the work in 62 seconds, with a name of two columns a letter.
		{"日本", 1, 3, 62 * time.Second, 60, "日本  33% |█████████                    | (1/3) [1m2s:2m4s]"},
		{"a name that is too long", 1, 2, 0, 20, "a name that is too long  50% || (1/2) [0s:0s]"},
	} {
		b := &Bar{columns: func() int { return test.columns }, label: test.label, done: test.done, total: test.total}
		if got := b.line(test.elapsed); got != test.want {
			t.Errorf("%d of %d in %d columns:\n%q; expected\n%q", test.done, test.total, test.columns, got, test.want)
		}
	}
}

// TestScreen plays what is written on a screen of one line.
func TestScreen(t *testing.T) {
	var out strings.Builder
	b := New(&out, func() int { return 40 }, 2)
	expect := func(want string) {
		t.Helper()
		var screen []rune
		at := 0
		for _, r := range out.String() {
			if r == '\r' {
				at = 0
				continue
			}
			if at == len(screen) {
				screen = append(screen, ' ')
			}
			screen[at] = r
			at++
		}
		if got := strings.TrimRight(string(screen), " "); got != want {
			t.Errorf("the screen shows %q; %q was expected", got, want)
		}
		if want == "" && at != 0 {
			t.Errorf("the cursor is in column %d", at)
		}
	}
	b.Clear()
	expect("")
	b.Describe("first name")
	expect("first name   0% |       | (0/2) [0s:0s]")
	b.Add(1)
	expect("first name  50% |███    | (1/2) [0s:0s]")
	b.Describe("b")
	expect("b  50% |████████        | (1/2) [0s:0s]")
	b.Clear()
	expect("")
	b.Describe("c")
	expect("c  50% |████████        | (1/2) [0s:0s]")
	b.Add(1)
	expect("")
	b.Describe("after the end")
	expect("")
}
