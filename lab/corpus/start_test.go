package corpus

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		harm  func(t *testing.T, path string, b []byte)
	}{
		{program, "-pie", hide(elf.PT_DYNAMIC)},
		{program, "-no-pie", hide(elf.PT_DYNAMIC)},
		{library, "-shared", hide(elf.PT_DYNAMIC)},
		{static, "-static", wrongEntry},
		{static, "-static-pie", wrongEntry},
	} {
		t.Run(tt.flags, func(t *testing.T) {
			dir := t.TempDir()
			source, original := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
			// What the program itself would do must not happen.
			if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { return rmdir(\"main is not to run\"); }\n"), 0o666); err != nil {
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
			tt.harm(t, original, b)
			if err := os.WriteFile(harmed, b, 0o777); err != nil {
				t.Fatal(err)
			}
			what := "x86_64 " + string(tt.way)
			check := func(result string) count {
				s.counts = make(map[string]*count)
				if err := s.check(original, result, t.TempDir()); err != nil {
					t.Fatal(err)
				}
				if len(s.counts) != 1 || s.counts[what] == nil {
					t.Fatalf("started as %q instead of %q; not tried: %v", slices.Sorted(maps.Keys(s.counts)), what, s.skips)
				}
				return *s.counts[what]
			}
			if c := check(original); c.before != 1 || c.after != 1 || c.differ != 0 {
				t.Errorf("compared with itself: %+v; 1 start before, 1 after and no difference expected", c)
			}
			if c := check(harmed); c.before != 1 || c.differ != 1 {
				t.Errorf("compared with a damaged copy: %+v; 1 start before and 1 difference expected", c)
			}
		})
	}
}

// hide makes the program header of a type one that is unused.
func hide(hidden elf.ProgType) func(t *testing.T, path string, b []byte) {
	return func(t *testing.T, path string, b []byte) {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		phoff := binary.LittleEndian.Uint64(b[32:])
		for i, p := range f.Progs {
			if p.Type == hidden {
				binary.LittleEndian.PutUint32(b[phoff+uint64(i)*56:], uint32(elf.PT_NULL))
			}
		}
	}
}

// wrongEntry makes the program start where nothing is.
func wrongEntry(_ *testing.T, _ string, b []byte) { binary.LittleEndian.PutUint64(b[24:], 16) }

// TestTrace expects the start-up of a static program to be followed to the first system
// call with an effect, and no further.
func TestTrace(t *testing.T) {
	peer.Look(t, "cc")
	dir := t.TempDir()
	source := filepath.Join(dir, "main.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { getppid(); return rmdir(\"victim\"); }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-static", "-o", filepath.Join(dir, "main"), source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "victim"), 0o777); err != nil {
		t.Fatal(err)
	}
	o := trace("/", dir, filepath.Join(dir, "main"))
	const want = " 110 stopped" // getppid is not in the list
	if n := len(o.mark) - len(want); n < 0 || o.mark[n:] != want {
		t.Errorf("trace: %v; it was expected to end with %q", o, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "victim")); err != nil {
		t.Errorf("the program was not stopped: %v", err)
	}
}
