package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"cfi2sframe/translate"
)

// TestReadmeShards runs the README's example of a survey in shards, on fewer files.
func TestReadmeShards(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Abs(fixtures)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	commands := 0
	for line := range strings.Lines(string(readme)) {
		line, ok := strings.CutPrefix(line, "    $ ")
		if !ok || !strings.Contains(line, "parts") {
			continue
		}
		commands++
		args := strings.Fields(strings.ReplaceAll(line, "/usr/bin /usr/lib", files))
		switch {
		case args[0] == "mkdir":
			if err := os.Mkdir(args[1], 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		case args[0] != "cfi2sframe":
			t.Fatalf("the command %q is not for this test", line)
		}
		shards := 1
		if strings.Contains(line, "3/8") {
			shards = 8
		}
		for i := range shards {
			of := strings.NewReplacer("3/8", fmt.Sprintf("%d/8", i+1), "3.json", fmt.Sprintf("%d.json", i+1))
			one := strings.Fields(of.Replace(strings.Join(args[1:], " ")))
			var out bytes.Buffer
			if status := run(context.Background(), one, &out, &out); status != exitDone {
				t.Fatalf("%q: status %d: %s", one, status, out.String())
			}
		}
	}
	if page, err := os.ReadFile("all.html"); commands != 3 || err != nil || len(page) == 0 {
		t.Errorf("%d commands, %v", commands, err)
	}
}

// TestReadme expects the README to name all flags and all reasons.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newCall(t.Context(), io.Discard, io.Discard)
	for _, cmd := range append(c.verbs(), c.root()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !bytes.Contains(readme, []byte("--"+f.Name)) {
				t.Errorf("README.md does not have --%s of %s", f.Name, cmd.Name())
			}
		})
	}
	for _, r := range translate.Reasons() {
		if !bytes.Contains(readme, []byte("`"+r.Name()+"`")) {
			t.Errorf("README.md does not explain the reason %s", r.Name())
		}
	}
}
