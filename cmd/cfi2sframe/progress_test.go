package main

import (
	"strings"
	"testing"
	"time"
)

// TestProgress expects a line after two seconds, which is rewritten at most twice per second, and erased at the end.
func TestProgress(t *testing.T) {
	var out strings.Builder
	at := time.Now()
	show := newProgress(&out, "a\nb", func() time.Time { return at })
	for _, step := range []struct {
		wait time.Duration
		done float64
		want string
	}{
		{time.Second, 0.1, ""},
		{time.Second, 0.2, "\r\"a\\nb\": inferring rows: 20 %\x1b[K"},
		{time.Second / 4, 0.3, ""},
		{time.Second / 4, 0.4, "\r\"a\\nb\": inferring rows: 40 %\x1b[K"},
		{0, 1, "\r\x1b[K"},
		{0, 1, ""},
	} {
		out.Reset()
		at = at.Add(step.wait)
		if show(step.done); out.String() != step.want {
			t.Errorf("%.1f: %q, want %q", step.done, out.String(), step.want)
		}
	}
	if showProgress(&out, "a") != nil {
		t.Error("progress is written to a file")
	}
}
