package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// helloSources are the first programs that newcomers try.
var helloSources = map[string]string{
	"h.c":  "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
	"h.cc": "#include <iostream>\nint main() { std::cout << \"hello\\n\"; }\n",
	"h.rs": "fn main() { println!(\"hello\"); }\n",
	"h.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n",
}

// calm matches the first line of a report on ordinary programs: the only code not covered is in a few functions of
// static libraries and of Go's runtime.
var calm = regexp.MustCompile(`^\S+: (100\.00|99\.[5-9]\d) % of the code is unwindable \([\d,]+ of [\d,]+ bytes\)\n`)

// TestHelloWorlds expects reports on hello worlds to raise no alarm: start-up code does not lower the share, and there
// is no advice on flags that are already set.
func TestHelloWorlds(t *testing.T) {
	long.Test(t)
	calmReport := func(t *testing.T, program string) {
		t.Helper()
		var said bytes.Buffer
		status := run(t.Context(), []string{program, "-o", program + ".out"}, &said, &said)
		if text := said.String(); status != exitDone || !calm.MatchString(text) ||
			strings.Contains(text, "-fasynchronous") {
			t.Errorf("status %d:\n%s", status, text)
		}
	}
	for _, command := range []string{
		"gcc -O0 h.c", "gcc -O2 h.c", "gcc -O2 -s h.c", "gcc -O2 -static h.c", "gcc -O2 -static -s h.c",
		"gcc -O2 -shared -fPIC h.c", "g++ -O0 h.cc", "g++ -O2 -s h.cc", "g++ -O2 -static h.cc",
		"clang -O0 h.c", "clang -O2 -s h.c", "clang -O2 -fuse-ld=lld h.c", "clang++ -O2 -fuse-ld=lld -s h.cc",
		"aarch64-linux-gnu-gcc -O2 h.c", "aarch64-linux-gnu-gcc -O0 -s h.c", "aarch64-linux-gnu-gcc -static -s h.c",
		"s390x-linux-gnu-gcc -O2 h.c", "s390x-linux-gnu-gcc -O0 -s h.c", "s390x-linux-gnu-gcc -static -s h.c",
		"rustc h.rs", "rustc -O -C strip=symbols h.rs", "go build h.go", "go build -ldflags=-s h.go",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range helloSources {
				testfile.Write(t, filepath.Join(dir, name), text)
			}
			words := strings.Fields(command)
			last := len(words) - 1
			args := append(words[1:last:last], "-o", "hello", words[last])
			cmd := exec.Command(peer.Look(t, words[0]), args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
			must.Run(t, cmd)
			calmReport(t, filepath.Join(dir, "hello"))
		})
	}
	t.Run("sid", func(t *testing.T) {
		var sources []string
		for name, text := range helloSources {
			path := filepath.Join(t.TempDir(), name)
			testfile.Write(t, path, text)
			sources = append(sources, path)
		}
		dir := peer.Run(t, "sid", "gcc-16 -O2 h.c -o gcc\ngcc-16 -O2 -s h.c -o gcc-s\ng++-16 -O2 h.cc -o g++\n"+
			"gcc-16 -fuse-ld=mold -s h.c -o mold\nclang-23 -O2 -fuse-ld=lld-23 h.c -o lld\n"+
			"clang-23 -O2 -s -fuse-ld=lld-23 h.c -o lld-s\ngcc-16 -static -s h.c -o static\n", sources...)
		for _, program := range []string{"gcc", "gcc-s", "g++", "mold", "lld", "lld-s", "static"} {
			calmReport(t, filepath.Join(dir, program))
		}
	})
}
