package convert

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestNoReturn checks that code after a call gets a row only if the called function can return.
func TestNoReturn(t *testing.T) {
	for name, want := range map[string]bool{
		"abort": false, "_Unwind_Resume": false, "_ZSt20__throw_length_errorPKc": false, "__throw_it": true,
		"aborts": true,
	} {
		for _, code := range []string{
			"call NAME@PLT", "call *NAME@GOTPCREL(%rip)",
			"call NAME@PLT; .subsection 1; .globl NAME; NAME: ret; .previous",
			"call 2f; .subsection 1; 2: call NAME; ret; .globl NAME; .hidden NAME; NAME: ret; .previous",
			"call 2f; .subsection 1; 2: jmp NAME; .globl NAME; .hidden NAME; nop; NAME: ret; .previous",
		} {
			source := strings.ReplaceAll("start: .globl start; .type start,@function; push %rbx; test %edi,%edi\n"+
				"jz 1f; pop %rbx; ret; 1: "+code+"\n .size start,.-start; nop; nop; pop %rbx; ret\n", "NAME", name)
			dir := t.TempDir()
			in, out := filepath.Join(dir, "code.s"), filepath.Join(dir, "code.so")
			testfile.Write(t, in, source)
			cmd := exec.Command(peer.Look(t, "gcc"), "-shared", "-nostdlib", "-Wl,--no-relax", "-o", out, in)
			must.Run(t, cmd)
			f := elftest.Parse(t, testfile.Read(t, out))
			var after uint64
			err := f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
				if f.SymbolName(table, s.Name) == "start" {
					after = s.Value + s.Size
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			table := must.Get(LoadCFI(t.Context(), f, Loading{Infer: true}))(t)
			if _, got := table.Lookup(after); got != want {
				t.Errorf("%s: row after the call: %t, want %t", strings.ReplaceAll(code, "NAME", name), got, want)
			}
		}
	}
}

// TestDoesNotReturn checks names of functions that ISO C, POSIX, glibc's headers, the Itanium C++ ABI and libstdc++
// declare noreturn, and of similar functions.
func TestDoesNotReturn(t *testing.T) {
	const leave = `abort exit _exit _Exit quick_exit pthread_exit thrd_exit __assert __assert_fail __assert_perror_fail
		err errx verr verrx longjmp _longjmp siglongjmp __longjmp_chk __stack_chk_fail __chk_fail __libc_fatal
		__fortify_fail _Unwind_Resume __cxa_throw __cxa_rethrow __cxa_bad_cast __cxa_bad_typeid
		__cxa_throw_bad_array_new_length __cxa_throw_bad_array_length __cxa_pure_virtual __cxa_deleted_virtual
		__cxa_call_unexpected __cxa_call_terminate _ZSt9terminatev _ZSt10unexpectedv
		_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE _ZSt24__throw_out_of_range_fmtPKcz`
	const stay = `warn warnx atexit on_exit setjmp __cxa_begin_catch _Unwind_Resume_or_Rethrow _ZSt13set_terminatePFvvE
		_ZSt4swap __throw_it`
	for name := range strings.FieldsSeq(leave) {
		if !doesNotReturn([]byte(name+"\x00next"), false) || doesNotReturn([]byte("_"+name+"2\x00"), false) ||
			doesNotReturn([]byte(name), true) == ordinary[name] {
			t.Error(name)
		}
	}
	for name := range strings.FieldsSeq(stay) {
		if doesNotReturn([]byte(name+"\x00"), false) {
			t.Error(name)
		}
	}
}
