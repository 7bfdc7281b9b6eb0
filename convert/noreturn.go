package convert

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
)

// neverReturn lists functions of the C and C++ run-time libraries that do not return.
var neverReturn = map[string]bool{
	"abort": true, "exit": true, "_exit": true, "_Exit": true, "quick_exit": true, "pthread_exit": true,
	"thrd_exit": true, "__assert": true, "__assert_fail": true, "__assert_perror_fail": true,
	"err": true, "errx": true, "verr": true, "verrx": true,
	"longjmp": true, "_longjmp": true, "siglongjmp": true, "__longjmp_chk": true,
	"__stack_chk_fail": true, "__chk_fail": true, "__libc_fatal": true, "__fortify_fail": true,
	"_Unwind_Resume": true, "__cxa_throw": true, "__cxa_rethrow": true, "__cxa_bad_cast": true,
	"__cxa_bad_typeid": true, "__cxa_throw_bad_array_new_length": true, "__cxa_throw_bad_array_length": true,
	"__cxa_pure_virtual": true, "__cxa_deleted_virtual": true, "__cxa_call_unexpected": true,
	"__cxa_call_terminate": true,
	"_ZSt9terminatev":      true, "_ZSt10unexpectedv": true,
	"_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE": true,
}

// maxNeverReturn is at least the length of the longest name in neverReturn.
const maxNeverReturn = 64

// ordinary lists the names in neverReturn that programs also give to functions of their own.
var ordinary = map[string]bool{"err": true, "errx": true, "verr": true, "verrx": true}

// alwaysReturn lists functions that return, although many calls of them are followed by one that does not. Members of
// classes in namespace std return, too.
var alwaysReturn = map[string]bool{
	"__cxa_allocate_exception": true, "__cxa_init_primary_exception": true, "__cxa_free_exception": true,
	"__cxa_begin_catch": true, "__cxa_end_catch": true, "__cxa_atexit": true, "atexit": true,
	"_Znwm": true, "_Znam": true, "_ZdlPv": true, "_ZdlPvm": true, "_ZdaPv": true, "_ZdaPvm": true,
	"malloc": true, "calloc": true, "realloc": true, "free": true, "strlen": true, "memcpy": true, "memset": true,
	"printf": true, "fprintf": true, "vfprintf": true, "sprintf": true, "snprintf": true, "vsnprintf": true,
	"__printf_chk": true, "__fprintf_chk": true, "__vfprintf_chk": true, "__sprintf_chk": true,
	"__snprintf_chk": true, "__vsnprintf_chk": true, "puts": true, "fputs": true, "fputc": true, "putc": true,
	"putchar": true, "fwrite": true, "fflush": true, "perror": true, "syslog": true, "__syslog_chk": true,
	"strerror": true, "__errno_location": true, "gettext": true, "dgettext": true, "dcgettext": true,
	"setlocale": true, "textdomain": true, "bindtextdomain": true, "signal": true, "sigaction": true,
	"sigprocmask": true, "sigemptyset": true, "getenv": true, "getpid": true, "close": true, "time": true,
}

// returnsAlways reports whether b starts with the name of a global function that returns.
func returnsAlways(b []byte) bool {
	b = b[:min(len(b), maxNeverReturn)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return alwaysReturn[string(b)] || bytes.HasPrefix(b, []byte("_ZNSt"))
}

// doesNotReturn reports whether b starts with the name of a function that does not return: a name in neverReturn, or
// std::__throw_* in libstdc++. The symbol is local or global.
func doesNotReturn(b []byte, local bool) bool {
	b = b[:min(len(b), maxNeverReturn)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	rest, std := bytes.CutPrefix(b, []byte("_ZSt"))
	if neverReturn[string(b)] {
		return !local || !ordinary[string(b)]
	}
	return std && bytes.HasPrefix(bytes.TrimLeft(rest, "0123456789"), []byte("__throw_"))
}

// eachRelocated calls fn for each word that a relocation sets, with the index of the relocation's symbol in .dynsym.
func eachRelocated(f *elffile.File, fn func(word uint64, symbol uint32)) error {
	for _, s := range elffile.Each(f.Sections) {
		if elf.SectionType(s.Type) != elf.SHT_RELA || !s.Alloc() {
			continue
		}
		err := f.ReadTable("section "+s.Name, s.Off, s.Size, elffile.RelaSize, func(rela []byte, _ uint64) error {
			for ; len(rela) >= elffile.RelaSize; rela = rela[elffile.RelaSize:] {
				if symbol := uint32(f.Order.Uint64(rela[elffile.RelaInfo:]) >> 32); symbol != 0 {
					fn(f.Order.Uint64(rela), symbol)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
