package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/files"
)

// TestTotalsUnread expects a directory that cannot be listed to count as a failed file.
func TestTotalsUnread(t *testing.T) {
	s := newConversion()
	s.form, s.recursive, s.to.DryRun = "json", true, true
	s.work = func() files.Work { return files.Add(s.Options, "") }
	var out bytes.Buffer
	unread := []*report.Failed{report.NewFailed("tree/dir", errors.New("permission denied"))}
	w := &work{settings: s, console: console{&out, &out}, unread: unread}
	if status := w.run(t.Context()); status != exitError {
		t.Errorf("exit status %d, want %d", status, exitError)
	}
	var totals struct {
		Complete      bool
		Files, Failed int
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &totals); err != nil || !totals.Complete || totals.Files != 1 ||
		totals.Failed != 1 {
		t.Errorf("%v, %+v\n%s", err, totals, &out)
	}
}
