package corpus

import (
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

// TestStart compares files with themselves, and with damaged copies that do not start.
func TestStart(t *testing.T) {
	peer.Look(t, "cc")
	s := must.Get(newStarter("/"))(t)
	defer s.close()
	for _, tt := range []struct {
		way   way
		flags string
	}{{program, "-pie"}, {program, "-no-pie"}, {library, "-shared"}} {
		t.Run(tt.flags, func(t *testing.T) {
			dir := t.TempDir()
			original, harmed := filepath.Join(dir, "main"), filepath.Join(dir, "harmed")
			// The program's own code must not run.
			text := "#include <unistd.h>\nint main(void) { return rmdir(\"main is not to run\"); }\n"
			testfile.Write(t, original+".c", text)
			must.Do(t, kit.Run("", "cc", "-fPIC", tt.flags, "-o", original, original+".c"))
			b := testfile.Read(t, original)
			hideDynamic(t, original, b)
			testfile.Write(t, harmed, b)
			s.counts = make(map[string]uint64)
			err := s.check(&job{path: original, out: original, dir: t.TempDir()})
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
	f := must.Get(elf.Open(path))(t)
	defer f.Close()
	phoff := binary.LittleEndian.Uint64(b[32:])
	for i, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			binary.LittleEndian.PutUint32(b[phoff+uint64(i)*56:], uint32(elf.PT_NULL))
		}
	}
}
