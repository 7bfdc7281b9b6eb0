package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestMake counts the builds of the program by make: one, or two if the program is for another machine.
func TestMake(t *testing.T) {
	makePath := peer.Look(t, "make")
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o777))
	for _, name := range []string{"Makefile", "scripts/manual"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), must.Get(os.ReadFile("../"+name))(t), 0o777))
	}
	// This go builds a program that prints nothing.
	const fake = `#!/bin/sh
[ "$1" = build ] || exec go "$@"
while [ "$1" != -o ]; do shift; done
echo "$2" >>builds
rm -f "$2"
printf '#!/bin/sh\n' >"$2"
chmod 755 "$2"
`
	must.Do(t, os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o777))
	for _, test := range []struct{ arch, want string }{
		{"", "build/cfi2sframe"},
		{"riscv64", "build/cfi2sframe build/native"},
		{"", "build/cfi2sframe"},
	} {
		cmd := exec.Command(makePath, "GO=./go", "CC=false")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOARCH="+test.arch)
		must.Run(t, cmd)
		log := filepath.Join(dir, "builds")
		if got := strings.Join(strings.Fields(string(must.Get(os.ReadFile(log))(t))), " "); got != test.want {
			t.Errorf("GOARCH=%s: built %s; want %s", test.arch, got, test.want)
		}
		must.Do(t, os.Remove(log))
	}
}
