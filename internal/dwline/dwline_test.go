package dwline_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/dwline"
	"cfi2sframe/internal/testkit/peer"
)

// source has functions in two files, one of them in another folder, and in sections of their own.
var source = map[string]string{
	"main.c": `#include "sub/inline.h"
int g(int);
__attribute__((noinline)) int f(int x)
{
	for (int i = 0; i < x; i++)
		x += twice(i) * g(i);
	return x;
}

__attribute__((cold, noinline)) int h(int x)
{
	return f(x) + g(x);
}

int main(int argc, char **argv)
{
	return argc > 3 ? h(argc) : f(argc);
}
`,
	"sub/inline.h": `static inline int twice(int x)
{
	volatile int y = 2 * x;
	return y;
}
`,
	"other.c": `volatile int v;
int g(int x)
{
	v = x;

	return v + 1;
}
`,
}

// TestPeer compares with addr2line at every address of code.
func TestPeer(t *testing.T) {
	dir := t.TempDir()
	for name, text := range source {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gcc := func(args ...string) func(t *testing.T) []*exec.Cmd {
		return func(t *testing.T) []*exec.Cmd { return []*exec.Cmd{exec.Command(peer.Look(t, "gcc"), args...)} }
	}
	gnu := func(t *testing.T) func(...string) *exec.Cmd { return peer.Tool(t, "trixie", "addr2line") }
	llvm := func(t *testing.T) func(...string) *exec.Cmd { return peer.Tool(t, "sid", "llvm-addr2line-23") }
	// clang makes a library by way of objects: its driver does not find a linker from here.
	clang := func(args ...string) func(t *testing.T) []*exec.Cmd {
		return func(t *testing.T) []*exec.Cmd {
			cc := peer.Tool(t, "sid", "clang-23")
			return []*exec.Cmd{
				cc(append(args, "-fPIC", "-O2", "-c", "main.c")...),
				cc(append(args, "-fPIC", "-O2", "-c", "other.c")...),
				peer.Tool(t, "sid", "ld.lld-23")("-shared", "-o", "a.out", "main.o", "other.o"),
			}
		}
	}
	for _, tt := range []struct {
		name string
		cmds func(t *testing.T) []*exec.Cmd
		peer func(t *testing.T) func(...string) *exec.Cmd
	}{
		{"gcc, version 2", gcc("-gdwarf-2", "-gstrict-dwarf", "-O2", "main.c", "other.c"), gnu},
		{"gcc, version 3", gcc("-gdwarf-3", "-gstrict-dwarf", "-O2", "main.c", "other.c"), gnu},
		{"gcc, version 4", gcc("-gdwarf-4", "-O2", "main.c", "other.c"), gnu},
		{"gcc, version 5", gcc("-gdwarf-5", "-O2", "main.c", "other.c"), gnu},
		{"gcc, 64-bit", gcc("-gdwarf-5", "-gdwarf64", "-O2", "main.c", "other.c"), llvm},
		{"gcc, sections of functions", gcc("-gdwarf-5", "-O2", "-ffunction-sections", "main.c", "other.c"), gnu},
		{"gcc, split", gcc("-gdwarf-5", "-gsplit-dwarf", "-O2", "main.c", "other.c"), llvm},
		{"gcc, link-time optimisation", gcc("-g", "-flto", "-O2", "main.c", "other.c"), gnu},
		{"gcc, compressed", gcc("-g", "-gz=zlib", "-O2", "main.c", "other.c"), gnu},
		{"gcc, type units", gcc("-g", "-fdebug-types-section", "-O2", "main.c", "other.c"), gnu},
		{"gcc, absolute names", gcc("-g", "-O2", filepath.Join(dir, "main.c"), filepath.Join(dir, "other.c")), gnu},
		{"gcc, object", gcc("-gdwarf-5", "-O2", "-c", "-o", "a.out", "main.c"), gnu},
		{"gcc, object of version 4", gcc("-gdwarf-4", "-O2", "-c", "-o", "a.out", "main.c"), gnu},
		{"gcc, object of sections", gcc("-g", "-O2", "-ffunction-sections", "-c", "-o", "a.out", "main.c"), gnu},
		{"gcc, compressed object", gcc("-g", "-O2", "-gz=zlib", "-c", "-o", "a.out", "main.c"), gnu},
		{"clang, version 5", clang("-gdwarf-5"), llvm},
		{"clang, version 4", clang("-gdwarf-4"), llvm},
		{"clang, version 3", clang("-gdwarf-3"), llvm},
		{"clang, sections of functions", clang("-g", "-ffunction-sections"), llvm},
		{"clang, compressed", clang("-g", "-gz=zstd"), llvm},
		{"clang for aarch64", clang("--target=aarch64-linux-gnu", "-g"), llvm},
		{"clang for aarch64_be", clang("--target=aarch64_be-linux-gnu", "-g"), llvm},
		{"clang for s390x", clang("--target=s390x-linux-gnu", "-g"), llvm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, cmd := range tt.cmds(t) {
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", cmd, err, out)
				}
			}
			compare(t, filepath.Join(dir, "a.out"), tt.peer(t))
		})
	}
}

// compare compares what Find says of a file with what addr2line does.
func compare(t *testing.T, path string, addr2line func(...string) *exec.Cmd) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Flags&uint64(elf.SHF_EXECINSTR) == 0 || s.Size == 0 {
			continue
		}
		addrs := make([]uint64, s.Size)
		args := []string{"-e", path}
		if f.IsObject() {
			args = append(args, "-j", s.Name)
		}
		for j := range addrs {
			addrs[j] = s.Base + uint64(j)
			args = append(args, fmt.Sprintf("%#x", s.Addr+uint64(j)))
		}
		got := make([]string, len(addrs))
		if err := dwline.Find(f, addrs, func(i int, file string, line int) {
			got[i] = fmt.Sprintf("%s:%d", file,
				line)
		}); err != nil {
			t.Fatal(err)
		}
		out, err := addr2line(args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for j, want := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			want, _, _ = strings.Cut(want, " (discriminator")
			if strings.HasPrefix(want, "??") || strings.HasSuffix(want, ":?") || strings.HasSuffix(want, ":0") {
				want = ""
			}
			if got[j] == "" && want == "" {
				continue
			}
			if compared++; filepath.Clean(got[j]) != filepath.Clean(want) {
				t.Errorf("%s+%#x: %q; addr2line says %q", s.Name, j, got[j], want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("%d addresses have a line; want 20", compared)
	}
}
