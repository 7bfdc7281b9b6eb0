package plt

import "sync"

var s390x = sync.OnceValue(func() *stubForms {
	return &stubForms{
		align:   4,
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
			{letter: 'J', code: code("c0f4???????? ????????")}, // jg x, then the offset of the relocation
			{letter: 'b', code: code("0d01")},                  // basr %r0,%r1
			{letter: 'g', code: code("b9090001")},              // sgr %r0,%r1
			{letter: 'h', code: code("a70b????")},              // aghi %r0,n
			{letter: 'i', code: code("eb100001000c")},          // srlg %r1,%r0,1
			{letter: 'k', code: code("b9080001")},              // agr %r0,%r1
			{letter: 's', code: code("e300f0380024")},          // stg %r0,56(%r15)
			{letter: 'z', code: code("0000")},                  // not an instruction
		},
		stubs: []form{
			stub("SLVGRN*"),     // lld: PLT header
			stub("LGRBFJ"),      // lld: entries
			stub("ghiksLVGRz*"), // mold: PLT header
			stub("LG[bR]z*"),    // mold: entries, and .plt.got
		},
	}
})
