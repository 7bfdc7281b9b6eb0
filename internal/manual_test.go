package internal_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestManuals expects no warnings from mandoc about handwritten manual pages, except for references to pages that are
// not installed.
func TestManuals(t *testing.T) {
	mandoc := peer.Look(t, "mandoc")
	pages, err := filepath.Glob("../*/*.[1-8]")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		out, err := exec.Command(mandoc, "-T", "lint", page).Output()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "referenced manual not found") {
				t.Error(line)
			}
		}
		if len(out) == 0 && err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
}
