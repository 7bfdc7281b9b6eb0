package main

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestUsage expects the documents to name all verbs and flags, and all help texts to be those of verbs.
func TestUsage(t *testing.T) {
	usage := testfile.Read(t, "../../docs/usage.md")
	changes := testfile.Read(t, "../../CHANGELOG.md")
	c := newCall(t.Context(), io.Discard, io.Discard)
	for _, cmd := range append(c.verbs(), c.root()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !bytes.Contains(usage, []byte("--"+f.Name)) {
				t.Errorf("--%s of %s: describe it in a table or section of docs/usage.md", f.Name, cmd.Name())
			}
		})
	}
	texts := []string{"cfi2sframe.txt"}
	for _, name := range verbNames() {
		if !bytes.Contains(usage, []byte("`"+name+"`")) && !bytes.Contains(usage, []byte("cfi2sframe "+name+" ")) &&
			!bytes.Contains(usage, []byte("cfi2sframe "+name+"`")) {
			t.Errorf("verb %s: describe it in a section of docs/usage.md", name)
		}
		if !bytes.Contains(changes, []byte("`"+name+"`")) {
			t.Errorf("verb %s: add it to the list of verbs in CHANGELOG.md", name)
		}
		texts = append(texts, name+".txt")
	}
	for _, f := range must.Get(helpFiles.ReadDir("help"))(t) {
		if !slices.Contains(texts, f.Name()) {
			t.Errorf("cmd/cfi2sframe/help/%s: add its verb to allVerbs in verbs.go, or remove it", f.Name())
		}
	}
}
