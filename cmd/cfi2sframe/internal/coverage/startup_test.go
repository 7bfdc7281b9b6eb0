package coverage

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

const (
	bareSize  = 40 // size in bytes of the assembly function, which has no CFI
	alignment = 16 // shorter padding between functions without CFI counts as code
)

// startupSources holds a program, and for each machine a function that must not be taken for start-up code.
var startupSources = map[string]string{
	"hello.c": "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
	"x86_64.s": ".globl bare\n.type bare, @function\nbare:\n.rept 40\nret\n.endr\n.size bare, .-bare\n" +
		".section .note.GNU-stack\n",
	"aarch64.s": ".globl bare\n.type bare, @function\nbare:\n.rept 10\nret\n.endr\n.size bare, .-bare\n",
	"s390x.s":   ".globl bare\n.type bare, @function\nbare:\n.rept 20\nbr %r14\n.endr\n.size bare, .-bare\n",
}

// startupOf returns the code of a program without CFI.
func startupOf(t *testing.T, path string) Uncovered {
	t.Helper()
	_, _, u := gapsOf(t, elftest.Parse(t, testfile.Read(t, path)))
	return u
}

// TestStartup expects the compilers' start-up code to be recognized, with symbols or stripped, but no other function
// without CFI, even if it follows directly. In a stripped file, its first bytes may count as start-up code.
func TestStartup(t *testing.T) {
	for _, tt := range []struct{ machine, compiler, flags string }{
		{"x86_64", "gcc", "-O0"},
		{"x86_64", "gcc", "-O2"},
		{"x86_64", "gcc", "-O0 -no-pie"},
		{"x86_64", "gcc", "-O0 -shared -fPIC"},
		{"x86_64", "gcc", "-O0 -fcf-protection=none -Wl,-z,norelro"},
		{"x86_64", "clang", "-O0"},
		{"x86_64", "clang", "-O0 -fuse-ld=lld"}, // pointers are in relocations only
		{"aarch64", "aarch64-linux-gnu-gcc", "-O0"},
		{"aarch64", "aarch64-linux-gnu-gcc", "-O0 -shared -fPIC"},
		{"s390x", "s390x-linux-gnu-gcc", "-O0"},
		{"s390x", "s390x-linux-gnu-gcc", "-O0 -shared -fPIC"},
	} {
		t.Run(tt.machine+" "+tt.compiler+" "+tt.flags, func(t *testing.T) {
			if testing.Short() && tt.flags != "-O0" && tt.flags != "-O0 -fuse-ld=lld" {
				t.Skip("compilers take seconds")
			}
			t.Parallel()
			dir := t.TempDir()
			for name, text := range startupSources {
				testfile.Write(t, filepath.Join(dir, name), text)
			}
			compile := func(out string, more ...string) string {
				args := append(strings.Fields(tt.flags), append(more, "-o", out)...)
				cmd := exec.Command(peer.Look(t, tt.compiler), args...)
				cmd.Dir = dir
				must.Run(t, cmd)
				return filepath.Join(dir, out)
			}
			assembly := tt.machine + ".s"
			// If no assembly is linked in, all code without CFI is start-up code.
			whole := startupOf(t, compile("whole", "hello.c"))
			if whole.Bytes != 0 || whole.Startup == 0 || len(whole.Functions) != 0 {
				t.Errorf("without assembly: %d bytes, functions %v", whole.Bytes, whole.Functions)
			}
			for _, order := range [][]string{{"hello.c", assembly}, {assembly, "hello.c"}} {
				for _, flag := range []string{"-g0", "-s"} {
					got := startupOf(t, compile("prog", append(order, flag)...))
					more := got.Startup - whole.Startup
					n, most := got.Bytes+more, uint64(3) // padding
					if flag == "-s" {
						most = 32
					}
					if n < bareSize || n-bareSize >= alignment || more > most {
						t.Errorf("%s %v: %d bytes without CFI, start-up code %d; want %d and %d", flag, order,
							got.Bytes, got.Startup, bareSize, whole.Startup)
					}
				}
			}
		})
	}
}
