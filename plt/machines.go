package plt

import (
	"regexp"
	"sync"
)

func stub(seq string) form { return form{seq: regexp.MustCompile("^(?:" + seq + ")")} }

// lazy is a stub that is jumped to with a word more on the stack.
func lazy(seq string, pushed int32) form {
	f := stub(seq)
	f.pushed = pushed
	return f
}

// A call arrives with the return address at SP.
var amd64 = sync.OnceValue(func() *machine {
	return &machine{
		align:   8,
		entry:   8,
		leaving: "JB",
		padding: "NC",
		tokens: []token{
			{letter: 'E', code: code("f30f1efa")},               // endbr64
			{letter: 'J', code: code("ff25 ????????")},          // jmp *x(%rip)
			{letter: 'J', code: code("f2ff25 ????????")},        // bnd jmp *x(%rip)
			{letter: 'G', code: code("ff35 ????????"), push: 8}, // push x(%rip)
			{letter: 'P', code: code("68 ????????"), push: 8},   // push $n
			{letter: 'R', code: code("4153"), push: 8},          // push %r11
			{letter: 'B', code: code("e9 ????????")},            // jmp x
			{letter: 'B', code: code("f2e9 ????????")},          // bnd jmp x
			{letter: 'M', code: code("41bb ????????")},          // mov $n,%r11d
			{letter: 'N', code: code("660f1f440000")},           // nopw 0(%rax,%rax,1)
			{letter: 'N', code: code("0f1f440000")},             // nopl 0(%rax,%rax,1)
			{letter: 'N', code: code("0f1f4000")},               // nopl 0(%rax)
			{letter: 'N', code: code("0f1f00")},                 // nopl (%rax)
			{letter: 'N', code: code("6690")},                   // xchg %ax,%ax
			{letter: 'N', code: code("90")},                     // nop
			{letter: 'C', code: code("cc")},                     // int3
		},
		stubs: []form{
			lazy("GJN*", 8),  // GNU ld and lld: the start of .plt, jumped to by its entries
			stub("JPB"),      // their entries
			stub("EPBN*"),    // the same with IBT
			stub("ERGJC*"),   // mold: the start of .plt, reached through the GOT
			stub("E?MJC*"),   // its entries
			stub("E?J[NC]*"), // .plt.sec, .plt.got
		},
	}
})

// A call arrives with the return address in x30.
var aarch64 = sync.OnceValue(func() *machine {
	return &machine{
		align:   4,
		leaving: "rR",
		padding: "n",
		tokens: []token{
			{letter: 'c', code: word(0xd503245f, 0xffffffff)},                   // bti c
			{letter: 's', code: word(0xa9bf7bf0, 0xffffffff), push: 16, ra: -8}, // stp x16,x30,[sp,#-16]!
			{letter: 't', code: word(0xa9bf0fe2, 0xffffffff), push: 16},         // stp x2,x3,[sp,#-16]!
			{letter: 'a', code: word(0x90000010, 0x9f00001f)},                   // adrp x16,x
			{letter: 'l', code: word(0xf9400211, 0xffc003ff)},                   // ldr x17,[x16,#n]
			{letter: 'd', code: word(0x91000210, 0xffc003ff)},                   // add x16,x16,#n
			{letter: 'p', code: word(0xd503219f, 0xffffffff)},                   // autia1716
			{letter: 'r', code: word(0xd61f0220, 0xffffffff)},                   // br x17
			{letter: 'A', code: word(0x90000002, 0x9f00001e)},                   // adrp x2,x and adrp x3,x
			{letter: 'L', code: word(0xf9400042, 0xffc003ff)},                   // ldr x2,[x2,#n]
			{letter: 'D', code: word(0x91000063, 0xffc003ff)},                   // add x3,x3,#n
			{letter: 'R', code: word(0xd61f0040, 0xffffffff)},                   // br x2
			{letter: 'n', code: word(0xd503201f, 0xffffffff)},                   // nop
			{letter: 'n', code: word(0xd4200000, 0xffe0001f)},                   // brk #n
		},
		stubs: []form{
			stub("c?saldrn*"),      // the start of .plt
			stub("c?al[dn]?p?rn*"), // its entries; mold has no add in .plt.got
			stub("c?tAALDRn*"),     // TLS descriptors
		},
	}
})

// A call arrives with the return address in r14 and SP 160 bytes below the CFA.
var s390x = sync.OnceValue(func() *machine {
	return &machine{
		align:   4,
		entry:   160,
		leaving: "RbJ",
		padding: "Nz",
		tokens: []token{
			{letter: 'S', code: code("e310f0380024")},          // stg %r1,56(%r15)
			{letter: 'L', code: code("c010????????")},          // larl %r1,x
			{letter: 'V', code: code("d207f0301008")},          // mvc 48(8,%r15),8(%r1)
			{letter: 'G', code: code("e310101000 04")},         // lg %r1,16(%r1)
			{letter: 'G', code: code("e310100000 04")},         // lg %r1,0(%r1)
			{letter: 'R', code: code("07f1")},                  // br %r1
			{letter: 'N', code: code("0700")},                  // nopr
			{letter: 'B', code: code("0d10")},                  // basr %r1,%r0
			{letter: 'F', code: code("e310100c0014")},          // lgf %r1,12(%r1)
			{letter: 'J', code: code("c0f4???????? ????????")}, // jg x, and the offset of the relocation
			{letter: 'b', code: code("0d01")},                  // basr %r0,%r1
			{letter: 'g', code: code("b9090001")},              // sgr %r0,%r1
			{letter: 'h', code: code("a70b????")},              // aghi %r0,n
			{letter: 'i', code: code("eb100001000c")},          // srlg %r1,%r0,1
			{letter: 'k', code: code("b9080001")},              // agr %r0,%r1
			{letter: 's', code: code("e300f0380024")},          // stg %r0,56(%r15)
			{letter: 'z', code: code("0000")},                  // no instruction
		},
		stubs: []form{
			stub("SLVGRN*"),     // lld: the start of .plt
			stub("LGRBFJ"),      // its entries
			stub("ghiksLVGRz*"), // mold: the start of .plt
			stub("LG[bR]z*"),    // its entries, and .plt.got
		},
	}
})
