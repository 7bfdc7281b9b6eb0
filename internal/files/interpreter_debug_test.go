package files_test

import (
	"context"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestInterpreterDebug converts ld.so, whose last section is extended to the end of its page. The debug file, made by
// objcopy, must get the same headers, both in the first conversion and in a repeated one.
func TestInterpreterDebug(t *testing.T) {
	ld := peer.File(t, "/lib64/ld-linux-x86-64.so.2")
	objcopy := peer.Look(t, "objcopy")
	dir := t.TempDir()
	debug, out := filepath.Join(dir, "ld.debug"), filepath.Join(dir, "ld.so")
	must.Run(t, exec.Command(objcopy, "--only-keep-debug", ld, debug))
	in := ld
	for range 2 {
		opt := files.Options{Work: files.Add(convert.Options{Force: true}, ""), DebugLinkUpdate: debug}
		must.Get(files.Convert(context.Background(), in, out, opt))(t)
		prog, d := sections(t, out), sections(t, debug)
		if s, ok := prog[".bss"]; !ok || (s.Addr+s.Size)%4096 != 0 {
			t.Fatalf(".bss of ld.so is %+v, which does not end at a page boundary", s)
		}
		for name, s := range prog {
			if x, ok := d[name]; !ok || x.Addr != s.Addr || x.Size != s.Size {
				t.Errorf("%s is %+v in the debug file, and %+v in the program", name, x, s)
			}
		}
		in = out
	}
}

// sections returns the loaded sections of a file, as debug/elf reads them.
func sections(t *testing.T, path string) map[string]elf.SectionHeader {
	t.Helper()
	f := must.Get(elf.Open(path))(t)
	defer f.Close()
	out := make(map[string]elf.SectionHeader)
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 {
			out[s.Name] = s.SectionHeader
		}
	}
	return out
}
