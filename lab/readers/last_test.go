package readers

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
)

// lastCall returns the address of a function's last instruction, which must be a call, and the return address.
func lastCall(t *testing.T, objdump, path, name string) (call, ret uint64) {
	t.Helper()
	f := must.Get(linked.Open(path))(t)
	must.Do(t, f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if strings.Contains(f.SymbolName(table, s.Name), name) && elf.SymType(s.Info&15) == elf.STT_FUNC && s.Size > 0 {
			ret = s.Value + s.Size
		}
	}))
	if ret == 0 {
		t.Fatalf("%s has no function %s", path, name)
	}
	end := strconv.FormatUint(ret, 10)
	out := must.Get(exec.Command(objdump, "-d", "--no-show-raw-insn", "--stop-address", end, path).Output())(t)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	m := regexp.MustCompile(`^ *([0-9a-f]+):\s+(call|bl|brasl)\s`).FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		t.Fatalf("%s ends with %q; want a call", name, lines[len(lines)-1])
	}
	return must.Get(strconv.ParseUint(m[1], 16, 64))(t), ret
}

// TestLastCall looks up unadjusted return addresses of calls that do not return and end their functions. Padding after
// a function has the row of the call, and so do the bytes after main in end.c, the last function of .text.
func TestLastCall(t *testing.T) {
	libs := libraries(t)
	own := must.Get(conformance.StartReader("own", top, ""))(t)
	const cfi = "-O2 -fasynchronous-unwind-tables "
	const flags = cfi + "-fstack-protector-all -shared -fPIC"
	for _, tt := range []struct{ compiler, flags, binutils, functions string }{
		{"gcc", flags + " -x c last.h", "", "last_abort last_stack_chk_fail"},
		{"clang", flags + " -x c last.h", "", "last_abort last_stack_chk_fail"},
		{"aarch64-linux-gnu-gcc", flags + " -x c last.h", "aarch64-linux-gnu-", "last_abort last_stack_chk_fail"},
		{"s390x-linux-gnu-gcc", flags + " -x c last.h", "s390x-linux-gnu-", "last_abort last_stack_chk_fail"},
		{"g++", flags + " -x c++ last.h", "", "last_throw"},
		{"clang++", flags + " -x c++ last.h", "", "last_throw"},
		{"clang", cfi + "end.c", "", "main"},
		{"clang", cfi + "-fuse-ld=lld end.c", "", "main"},
		// Without this flag, older releases of rustc emit an instruction after the call.
		{"rustc", "-O -Z trap-unreachable=no --crate-type cdylib last.rs", "", "last_panic"},
	} {
		t.Run(tt.compiler+" "+tt.functions, func(t *testing.T) {
			dir := t.TempDir()
			command := strings.Fields("env -C c RUSTC_BOOTSTRAP=1 " + peer.Look(t, tt.compiler) + " " + tt.flags)
			must.Do(t, kit.Run("", append(command, "-o", filepath.Join(dir, "last.so"))...))
			path := filepath.Join(dir, "last.so")
			for _, name := range strings.Fields(tt.functions) {
				call, ret := lastCall(t, peer.Look(t, tt.binutils+"objdump"), path, name)
				if ret%64 == 0 && name != "last_panic" {
					t.Fatalf("%s fits its alignment: no padding follows; change its size in c/last.h", name)
				}
				for _, f := range formats {
					for _, padding := range []string{"on", "off"} {
						file := convert(t, path, f.form+" --padding="+padding)
						v := must.Get(conformance.FromFile(file, f.vectors))(t)
						answers := []conformance.Reader{*own}
						if slices.Contains(strings.Fields(f.abis), v.ABI) {
							answers = append(answers, *libs.readers[f.library])
						}
						for _, r := range answers {
							pcs := []vector.Hex{vector.Hex(call), vector.Hex(ret)}
							q := vector.Question{ABI: v.ABI, Address: v.Address, PCs: pcs, Section: v.Section}
							reply, err := r.Ask(&q)
							if err != nil || len(reply.Answers) != 2 || reply.Answers[0] == nil {
								t.Fatalf("%s, %s: error %v, %+v", name, f.form, err, reply)
							}
							row, after := reply.Answers[0], reply.Answers[1]
							if padding == "off" {
								row = nil
							}
							if !vector.Same(row, after) {
								t.Errorf("%s, %s, padding %s, %s: at the return address %#x %v, want %v",
									name, f.form, padding, r.Hello.Reader, ret, after, row)
							}
						}
					}
				}
			}
		})
	}
}
