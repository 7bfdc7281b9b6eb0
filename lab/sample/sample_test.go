package sample

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestQuick samples two programs for some seconds.
func TestQuick(t *testing.T) {
	if os.Getuid() != 0 {
		peer.Missing(t, "root is needed, for a mount namespace")
	}
	for _, name := range []string{"unshare", "gcc", "g++"} {
		peer.Look(t, name)
	}
	peer.File(t, "/usr/bin/perl")
	out, err := exec.Command("../../scripts/lab", "sample", "--quick").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"| perl | V3 | 3000 | 0 | ", "| exceptions (C++) | V3 | 3000 | 0 | "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
