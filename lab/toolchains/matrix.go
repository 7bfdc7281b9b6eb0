package toolchains

import (
	"strings"

	"cfi2sframe/sframe"
)

// A compiler is one of a Debian suite.
type compiler struct {
	suite   string
	family  string // gcc or clang
	version string // in the names of its programs, or ""
	label   string
}

var (
	gcc12   = compiler{"bookworm", "gcc", "", "gcc 12"}
	gcc14   = compiler{"trixie", "gcc", "", "gcc 14"}
	gcc16   = compiler{"sid", "gcc", "-16", "gcc 16"}
	clang14 = compiler{"bookworm", "clang", "-14", "clang 14"}
	clang19 = compiler{"trixie", "clang", "-19", "clang 19"}
	clang23 = compiler{"sid", "clang", "-23", "clang 23"}
)

// triples are the machines by the names that compilers have for them.
var triples = map[string]string{"amd64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "s390x": "s390x-linux-gnu"}

// driver returns the command that compiles C or C++ for an ABI.
func (c compiler) driver(abi string, cxx bool) string {
	name := c.family
	switch {
	case cxx && c.family == "gcc":
		name = "g++"
	case cxx:
		name = "clang++"
	}
	switch {
	case c.family == "clang":
		return name + c.version + " --target=" + triples[abi]
	case abi == "amd64":
		return name + c.version
	}
	return triples[abi] + "-" + name + c.version
}

// peer returns the version of SFrame that the compiler's own assembler writes, and the flags for that, or 0.
func (c compiler) peer(abi string) (sframe.Version, string) {
	const gas = "-Wa,--gsframe"
	switch {
	case c == gcc12 && abi != "s390x":
		return sframe.V1, gas
	case c == gcc14 && abi != "s390x":
		return sframe.V2, gas
	case c == gcc16:
		return sframe.V3, gas
	case c == clang23 && abi == "amd64":
		return sframe.V2, "-Wa,--allow-experimental-sframe " + gas
	}
	return 0, ""
}

// A kind of case is built in a way of its own.
const (
	kindProgram = ""        // compiled, linked and run
	kindPGO     = "profile" // compiled twice, the second time by what the first one's run has counted
	kindObject  = "object"  // only compiled: there is nothing to link it with, or to run it on
	kindDead    = "link"    // linked, but not run: for a processor, or a runtime, that is not there
)

// A testCase is a program, how it is compiled, and by what.
type testCase struct {
	cc      compiler
	abi     string
	program string // user, zlib, lua, sqlite or angelscript
	flags   string
	kind    string
}

func (c *testCase) String() string {
	return strings.TrimSpace(strings.Join([]string{c.cc.label, c.abi, c.program, c.flags, c.kind}, " "))
}

// extra are flags that change frames, each with the compiler and ABI that it is tried with.
var extra = []struct {
	cc    compiler
	abi   string
	flags string
	kind  string
}{
	{gcc16, "amd64", "-O1", kindProgram},
	{gcc16, "amd64", "-Os", kindProgram},
	{gcc16, "amd64", "-O2 -flto", kindProgram},
	{gcc16, "amd64", "-O2 -freorder-blocks-and-partition", kindPGO},
	{gcc16, "amd64", "-O2 -fpatchable-function-entry=16,8", kindProgram},
	{gcc16, "amd64", "-O2 -fcf-protection=full -mshstk", kindProgram},
	{gcc16, "amd64", "-O1 -fsplit-stack", kindProgram},
	{gcc16, "amd64", "-O2 -fno-omit-frame-pointer", kindProgram},
	{gcc16, "amd64", "-O2 -g1 -fno-asynchronous-unwind-tables -fno-unwind-tables", kindProgram},
	{gcc16, "amd64", "-O1 -g1 -gdwarf64 -fno-asynchronous-unwind-tables -fno-unwind-tables", kindProgram},
	{gcc16, "amd64", "-O1 -fno-dwarf2-cfi-asm", kindProgram},
	{gcc16, "amd64", "-Os -ffunction-sections -Wl,--gc-sections", kindProgram},
	{gcc16, "amd64", "-O2 -mgeneral-regs-only", kindObject},
	{gcc16, "amd64", "-O2 -fstack-clash-protection -fstack-protector-all", kindProgram},
	{gcc16, "amd64", "-O2 -mstackrealign -DSQLITE_USE_ALLOCA", kindProgram},
	{gcc16, "amd64", "-O3 -mavx512f -mprefer-vector-width=512 -mstackrealign -DSQLITE_USE_ALLOCA", kindDead},
	{gcc16, "amd64", "-O1 -mapxf", kindDead},
	{gcc16, "amd64", "-O1 -maccumulate-outgoing-args -mno-red-zone", kindProgram},
	{gcc16, "amd64", "-O1 -mcmodel=large -fno-pie -no-pie", kindProgram},
	{gcc16, "amd64", "-O1 -fzero-call-used-regs=all -mindirect-branch=thunk -mfunction-return=thunk", kindProgram},
	{gcc16, "aarch64", "-O2 -mbranch-protection=standard", kindProgram},
	{gcc16, "aarch64", "-O1 -mbranch-protection=pac-ret+leaf+b-key", kindProgram},
	{gcc16, "aarch64", "-O1 -mbranch-protection=bti", kindProgram},
	{gcc16, "aarch64", "-O1 -mbranch-protection=gcs", kindProgram},
	{gcc16, "aarch64", "-O2 -fsanitize=shadow-call-stack -ffixed-x18", kindDead},
	{gcc16, "aarch64", "-O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer", kindProgram},
	{gcc16, "aarch64", "-O1 -fstack-clash-protection -DSQLITE_USE_ALLOCA -fpatchable-function-entry=4,2", kindProgram},
	{gcc16, "aarch64", "-O3 -march=armv9-a+sve2", kindDead},
	{gcc16, "aarch64", "-O1 -mbig-endian", kindObject},
	{gcc16, "aarch64", "-O1 -mgeneral-regs-only", kindObject},
	{gcc16, "aarch64", "-O2 -flto", kindProgram},
	{gcc16, "s390x", "-O2 -mbackchain", kindProgram},
	{gcc16, "s390x", "-O1 -mpacked-stack", kindProgram},
	{gcc16, "s390x", "-O1 -mpacked-stack -mbackchain -msoft-float", kindObject},
	{gcc16, "s390x", "-O1 -fsplit-stack", kindProgram},
	{gcc16, "s390x", "-O3 -march=z16", kindDead},
	{gcc16, "s390x", "-O1 -fstack-clash-protection -DSQLITE_USE_ALLOCA -fno-omit-frame-pointer", kindProgram},
	{gcc14, "amd64", "-O2 -flto", kindProgram},
	{gcc14, "amd64", "-O1 -fsplit-stack", kindProgram},
	{gcc14, "aarch64", "-O1 -mbranch-protection=standard", kindProgram},
	{gcc12, "aarch64", "-O1 -mbranch-protection=pac-ret+b-key", kindProgram},
	{gcc12, "amd64", "-O1 -mstackrealign -DSQLITE_USE_ALLOCA", kindProgram},
	{clang23, "amd64", "-Os", kindProgram},
	{clang23, "amd64", "-O2 -flto -fuse-ld=lld", kindProgram},
	{clang23, "amd64", "-O1 -fbasic-block-sections=all", kindProgram},
	{clang23, "amd64", "-O1 -fcf-protection=full -fpatchable-function-entry=16,8", kindProgram},
	{clang23, "amd64", "-O1 -mstackrealign -mavx2 -DSQLITE_USE_ALLOCA -fstack-clash-protection", kindDead},
	{clang23, "amd64", "-O1 -fno-omit-frame-pointer -mretpoline -ffunction-sections -Wl,--gc-sections", kindProgram},
	{clang23, "amd64", "-O1 -g1 -fno-asynchronous-unwind-tables -fno-unwind-tables", kindProgram},
	{clang19, "amd64", "-O2 -fsplit-machine-functions", kindPGO},
	{clang23, "aarch64", "-O1 -mbranch-protection=pac-ret+leaf+pc", kindDead},
	{clang23, "aarch64", "-O1 -fsanitize=shadow-call-stack -ffixed-x18", kindDead},
	{clang23, "aarch64", "-Oz -moutline", kindProgram},
	{clang23, "aarch64", "-O3 -march=armv9-a+sve2 -fstack-clash-protection", kindDead},
	{clang23, "s390x", "-O1 -mbackchain", kindProgram},
	{clang14, "aarch64", "-O1 -mbranch-protection=standard", kindProgram},
}

// matrix returns all cases: all flags with programs that compile in a few seconds, and then large programs.
func matrix() []testCase {
	var quick, large []testCase
	for _, e := range extra {
		of := func(program string) testCase { return testCase{e.cc, e.abi, program, e.flags, e.kind} }
		if strings.Contains(e.flags, "-mgeneral-regs-only") { // the other programs have floating point numbers
			quick = append(quick, of("zlib"))
			continue
		}
		quick, large = append(quick, of("user")), append(large, of("sqlite"))
		if !strings.Contains(e.flags, "SQLITE") {
			quick = append(quick, of("lua"))
		}
	}
	for _, level := range []string{"-O2", "-O0", "-O3"} {
		for _, abi := range []string{"amd64", "aarch64", "s390x"} {
			for _, cc := range []compiler{gcc16, clang23, gcc14, gcc12, clang19, clang14} {
				of := func(program string) testCase { return testCase{cc, abi, program, level, kindProgram} }
				quick = append(quick, of("user"), of("lua"))
				large = append(large, of("sqlite"), of("angelscript"))
			}
		}
	}
	return append(quick, large...)
}
