package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/pflag"

	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/translate"
)

// TestUsage expects docs/usage.md to name all flags, and docs/reports.md all reasons.
func TestUsage(t *testing.T) {
	usage := testfile.Read(t, "../../docs/usage.md")
	reasons := testfile.Read(t, "../../docs/reports.md")
	c := newCall(t.Context(), io.Discard, io.Discard)
	for _, cmd := range append(c.verbs(), c.root()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !bytes.Contains(usage, []byte("--"+f.Name)) {
				t.Errorf("docs/usage.md lacks --%s of %s", f.Name, cmd.Name())
			}
		})
	}
	for _, r := range translate.Reasons() {
		if !bytes.Contains(reasons, []byte("`"+r.Name()+"`")) {
			t.Errorf("docs/reports.md does not explain %s", r.Name())
		}
	}
}
