package corpus

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestStart compares files with themselves, and with damaged copies that do not start.
func TestStart(t *testing.T) {
	peer.Look(t, "cc")
	s, err := newStarter("/")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, tt := range []struct {
		way   way
		flags string
	}{{program, "-pie"}, {program, "-no-pie"}, {library, "-shared"}} {
		t.Run(tt.flags, func(t *testing.T) {
			dir := t.TempDir()
			source, original := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
			// What the program itself would do must not happen.
			text := "#include <unistd.h>\nint main(void) { return rmdir(\"main is not to run\"); }\n"
			if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cc", "-fPIC", tt.flags, "-o", original, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			harmed := filepath.Join(dir, "harmed")
			b, err := os.ReadFile(original)
			if err != nil {
				t.Fatal(err)
			}
			hideDynamic(t, original, b)
			if err := os.WriteFile(harmed, b, 0o777); err != nil {
				t.Fatal(err)
			}
			s.counts = make(map[string]uint64)
			err = s.check(&job{path: original, out: original, dir: t.TempDir()})
			want := "started as x86_64 " + string(tt.way)
			if err != nil || len(s.counts) != 1 || s.counts[want] != 1 {
				t.Errorf("%v, %v; want one %s", err, s.counts, want)
			}
			err = s.check(&job{path: original, out: harmed, dir: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), "as a x86_64 "+string(tt.way)) {
				t.Errorf("harmed: %v", err)
			}
		})
	}
}

// hideDynamic makes the program header of the dynamic section unused.
func hideDynamic(t *testing.T, path string, b []byte) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	phoff := binary.LittleEndian.Uint64(b[32:])
	for i, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			binary.LittleEndian.PutUint32(b[phoff+uint64(i)*56:], uint32(elf.PT_NULL))
		}
	}
}
