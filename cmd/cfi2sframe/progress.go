package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
)

// showProgress returns a function that prints the progress of the inference for a file, or nil if w is no terminal.
func showProgress(w io.Writer, file string) convert.Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return newProgress(w, file, time.Now)
}

// newProgress returns a function that rewrites one line. The line appears after two seconds, and is erased at the end.
func newProgress(w io.Writer, file string, now func() time.Time) convert.Progress {
	next, printed := now().Add(2*time.Second), false
	return func(done float64) {
		switch at := now(); {
		case done >= 1 && printed:
			fmt.Fprint(w, "\r\x1b[K")
			printed = false
		case done < 1 && !at.Before(next):
			fmt.Fprintf(w, "\r%s: inferring rows: %.0f %%\x1b[K", report.Printable(file), done*100)
			next, printed = at.Add(time.Second/2), true
		}
	}
}
