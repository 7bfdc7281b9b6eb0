package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"cfi2sframe/translate"
)

// TestReadme keeps the README's list of flags and of reasons that of the program.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if status := run(context.Background(), []string{"--help"}, &out, &out); status != exitDone {
		t.Fatalf("--help: status %d", status)
	}
	_, flags, _ := strings.Cut(out.String(), "Flags:\n")
	flags, _, ok := strings.Cut(flags, "\nExit status")
	if !ok {
		t.Fatalf("no flags in %s", out.String())
	}
	for line := range strings.Lines(flags) {
		if !bytes.Contains(readme, []byte("    "+line)) {
			t.Errorf("README.md does not have the line %q", line)
		}
	}
	for _, r := range translate.Reasons() {
		if !bytes.Contains(readme, []byte("`"+r.Name()+"`")) {
			t.Errorf("README.md does not explain the reason %s", r.Name())
		}
	}
}
