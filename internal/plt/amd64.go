package plt

import "sync"

var amd64 = sync.OnceValue(func() *stubForms {
	return &stubForms{
		align:   8,
		leaving: "JBL",
		padding: "NC",
		thunk:   "WT",
		tokens: []token{
			{letter: 'E', code: code("f30f1efa")},                   // endbr64
			{letter: 'J', code: code("ff25 ????????")},              // jmp *x(%rip)
			{letter: 'J', code: code("f2ff25 ????????")},            // bnd jmp *x(%rip)
			{letter: 'G', code: code("ff35 ????????"), push: 8},     // push x(%rip)
			{letter: 'P', code: code("68 ????????"), push: 8},       // push $n
			{letter: 'R', code: code("4153"), push: 8},              // push %r11
			{letter: 'B', code: code("e9 ????????"), jumps: true},   // jmp x
			{letter: 'B', code: code("f2e9 ????????"), jumps: true}, // bnd jmp x
			{letter: 'M', code: code("41bb ????????")},              // mov $n,%r11d
			{letter: 'Q', code: code("4c8b1d ????????")},            // mov x(%rip),%r11
			{letter: 'K', code: code("e8 ????????"), calls: true},   // call x
			{letter: 'A', code: code("f390")},                       // pause
			{letter: 'F', code: code("0faee8")},                     // lfence
			{letter: 'L', code: code("eb ??")},                      // jmp x
			{letter: 'W', code: code("4c891c24")},                   // mov %r11,(%rsp)
			{letter: 'T', code: code("c3")},                         // ret
			{letter: 'N', code: code("660f1f440000")},               // nopw 0(%rax,%rax,1)
			{letter: 'N', code: code("0f1f440000")},                 // nopl 0(%rax,%rax,1)
			{letter: 'N', code: code("0f1f4000")},                   // nopl 0(%rax)
			{letter: 'N', code: code("0f1f00")},                     // nopl (%rax)
			{letter: 'N', code: code("6690")},                       // xchg %ax,%ax
			{letter: 'N', code: code("90")},                         // nop
			{letter: 'C', code: code("cc")},                         // int3
		},
		stubs: []form{
			lazy("GJN*", 8),  // GNU ld and lld: PLT header, to which the entries jump
			stub("JPB"),      // GNU ld and lld: entries
			stub("EPBN*"),    // GNU ld and lld: entries with IBT
			stub("ERGJC*"),   // mold: PLT header, reached through the GOT
			stub("E?MJC*"),   // mold: entries
			stub("E?J[NC]*"), // .plt.sec, .plt.got
			// lld -z retpolineplt: entries call or jump to code that calls the thunk. A loop after each call traps
			// speculative execution.
			lazy("GQKAFLC*", 8), // PLT header
			stub("KAFLC*"),      // PLT header with -z now
			thunk("WTC*"),
			stub("QKBPBC*"), // entries
			stub("QBC*"),    // entries with -z now
		},
	}
})
