package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
)

// docsFiles makes the files that README.md and docs/usage.md use.
const docsFiles = `set -e
cp $BIN/prologue prog
cp $BIN/prologue lib.o
cfi2sframe -q --format 2 $BIN/pltlib.so -o old.so
cfi2sframe -q $BIN/pltlib.so -o new.so
mkdir -p build/bin build/lib rootfs/bin
cp $BIN/prologue build/bin/a
cp $BIN/framepointer rootfs/bin/b
cp $BIN/pltlib.so build/lib/c.so
echo 'int f(void) { return 1; }' >f.c
cc -c f.c && ar r lib.a f.o 2>log
echo 'int main(void) { return 0; }' >main.c
`

// TestDocs runs all commands of README.md and docs/usage.md, each file's in one directory, as a reader would.
func TestDocs(t *testing.T) {
	for _, tool := range []string{"cc", "ar", "jq"} {
		peer.Look(t, tool)
	}
	bin, err := filepath.Abs("../../testdata/bin/amd64")
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ls := plain.File(t, "/bin/ls")
	tools := t.TempDir() // the linkers of "ld --print-dir" are copies of the command itself, not of the test
	if out, err := exec.Command("go", "build", "-o", tools, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	for _, name := range []string{"README.md", "docs/usage.md"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		run := func(command string) (string, int) {
			cmd := exec.Command("sh", "-c", command)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "BIN="+bin, "TOP="+top)
			out, err := cmd.CombinedOutput()
			if err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, status := run(docsFiles); status != 0 {
			t.Fatalf("status %d: %s", status, out)
		}
		commands := 0
		for line := range strings.Lines(string(text)) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok || !strings.HasPrefix(line, "    ") {
				continue
			}
			commands++
			command = strings.Replace(command, "go build", "go build -C $TOP -o $PWD/built", 1)
			command = strings.Replace(command, "/usr/bin /usr/lib", "rootfs", 1)
			command = strings.Replace(command, "/bin/ls", ls, 1)
			want := 0
			if strings.HasPrefix(command, "cfi2sframe diff ") {
				want = 1
			}
			if out, status := run(command); status != want {
				t.Errorf("%s: %s\nstatus %d, want %d: %s", name, command, status, want, out)
			}
		}
		if commands < 10 {
			t.Errorf("%s has %d commands", name, commands)
		}
	}
}
