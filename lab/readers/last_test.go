package readers

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// lastCall returns the address of the last instruction of a function, which has to be a call as objdump prints it, and
// that after it, to which the call would return.
func lastCall(t *testing.T, objdump, path, name string) (call, ret uint64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.Contains(s.Name, name) && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			ret = s.Value + s.Size
		}
	}
	if ret == 0 {
		t.Fatalf("%s has no function %s", path, name)
	}
	end := strconv.FormatUint(ret, 10)
	out, err := exec.Command(objdump, "-d", "--no-show-raw-insn", "--stop-address", end, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	m := regexp.MustCompile(`^ *([0-9a-f]+):\s+(call|bl|brasl)\s`).FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		t.Fatalf("%s ends with %q; a call was expected", name, lines[len(lines)-1])
	}
	if call, err = strconv.ParseUint(m[1], 16, 64); err != nil {
		t.Fatal(err)
	}
	return call, ret
}

// TestLastCall looks up return addresses, as they are, of calls that do not return and end their functions. Padding
// after the function has the row of the call.
func TestLastCall(t *testing.T) {
	const flags = "-O2 -fstack-protector-all -fasynchronous-unwind-tables -shared -fPIC"
	for _, tt := range []struct{ compiler, flags, binutils, functions string }{
		{"gcc", flags + " -x c last.h", "", "last_abort last_stack_chk_fail"},
		{"clang", flags + " -x c last.h", "", "last_abort last_stack_chk_fail"},
		{"aarch64-linux-gnu-gcc", flags + " -x c last.h", "aarch64-linux-gnu-", "last_abort last_stack_chk_fail"},
		{"s390x-linux-gnu-gcc", flags + " -x c last.h", "s390x-linux-gnu-", "last_abort last_stack_chk_fail"},
		{"g++", flags + " -x c++ last.h", "", "last_throw"},
		{"clang++", flags + " -x c++ last.h", "", "last_throw"},
		// Older releases put an instruction after the call unless told not to.
		{"rustc", "-O -Z trap-unreachable=no --crate-type cdylib last.rs", "", "last_panic"},
	} {
		t.Run(tt.compiler, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"last.h", "last.rs"} {
				b, err := sources.ReadFile("c/" + name)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(peer.Look(t, tt.compiler), append(strings.Fields(tt.flags), "-o", "last.so")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "RUSTC_BOOTSTRAP=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			path := filepath.Join(dir, "last.so")
			for _, name := range strings.Fields(tt.functions) {
				call, ret := lastCall(t, peer.Look(t, tt.binutils+"objdump"), path, name)
				if ret%64 == 0 && name != "last_panic" {
					t.Fatalf("%s fits its alignment: no padding follows; change its size in c/last.h", name)
				}
				for _, f := range formats {
					for _, f.opt.NoPadding = range []bool{false, true} {
						s, err := convertFile(path, dir, f.opt)
						if err != nil {
							t.Fatal(err)
						}
						t.Run(fmt.Sprintf("%s, %s, NoPadding %t", name, f.name, f.opt.NoPadding), func(t *testing.T) {
							testLastCall(t, s, call, ret)
							if f.takes(s.section.ABI) {
								testLastCallLibsframe(t, s, f.lib, call, ret)
							}
						})
					}
				}
			}
		})
	}
}

// testLastCall asks package sframe.
func testLastCall(t *testing.T, s *subject, call, ret uint64) {
	want, ok, err := s.section.Lookup(call)
	if err != nil || !ok {
		t.Fatalf("no row at the call (%#x), error %v", call, err)
	}
	got, ok, err := s.section.Lookup(ret)
	if err != nil || ok == s.opt.NoPadding || ok && got.Row != want.Row {
		t.Errorf("at the return address %#x: row %t, %+v, error %v; at the call %+v", ret, ok, got.Row, err, want.Row)
	}
}

// testLastCallLibsframe asks sframe_find_fre.
func testLastCallLibsframe(t *testing.T, s *subject, lib string, call, ret uint64) {
	var at [2]answer
	offsets := []int64{int64(call - s.addr), int64(ret - s.addr)}
	_, err := find(librariesForTest(t), lib).ask(s.bytes, offsets, func(i int, a *answer) error {
		at[i] = *a
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if at[0].Flags&found == 0 || (at[1].Flags&found == 0) != s.opt.NoPadding || !s.opt.NoPadding && at[0] != at[1] {
		t.Errorf("libsframe %s at the call: %+v; at the return address %#x: %+v", lib, at[0], ret, at[1])
	}
}
