package plt

import "sync"

var aarch64 = sync.OnceValue(func() *stubForms {
	return &stubForms{
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
			stub("c?saldrn*"),      // PLT header
			stub("c?al[dn]?p?rn*"), // PLT entries; mold's .plt.got has no add
			stub("c?tAALDRn*"),     // TLS descriptors
		},
	}
})
