package toolchains

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/sframe"
)

// directories of other scripts.
type directories struct {
	peers      string // the suites of scripts/peers
	toolchains string // the suites of scripts/lab toolchains
	sources    string // a directory for each program
}

func (d *directories) root(suite string) string {
	if suite == "sid" {
		return filepath.Join(d.peers, suite)
	}
	return filepath.Join(d.toolchains, suite)
}

// A built case is what a compiler made of a program.
type built struct {
	dir     string // to be removed
	program string // the linked file, or ""
	objects []string
	// peer has the section that the compiler's own assembler wrote, of version peerVersion.
	// It is replaced in peerBase.
	peer, peerBase string
	peerVersion    sframe.Version
	peerFailed     string // what the assembler said, if it made nothing
}

// script runs a shell script in a directory of a suite.
func (d *directories) script(suite, dir, script string) ([]byte, error) {
	root := d.root(suite)
	in, ok := strings.CutPrefix(dir, root)
	if !ok {
		return nil, fmt.Errorf("%s is not inside %s", dir, root)
	}
	cmd := exec.Command("chroot", root, "sh", "-ec", "cd "+in+"\n"+script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s%s", suite, err, tail(out), tail(stderr.Bytes()))
	}
	return out, nil
}

// tail returns the last bytes of what a program said.
func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// build compiles a case.
func (d *directories) build(c *testCase) (*built, error) {
	dir, err := os.MkdirTemp(filepath.Join(d.root(c.cc.suite), "tmp"), "toolchains-")
	if err != nil {
		return nil, err
	}
	b := &built{dir: dir}
	if err := d.fill(b, c); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}

func (d *directories) fill(b *built, c *testCase) error {
	if err := os.CopyFS(b.dir, os.DirFS(filepath.Join(d.sources, c.program))); err != nil {
		return err
	}
	version, flag := c.cc.peer(c.abi)
	switch {
	case strings.Contains(c.flags, "-fno-dwarf2-cfi-asm"): // the assembler sees no directives
		version = 0
	case c.cc.family == "clang" && (c.program != "sqlite" || strings.Contains(c.flags, "-flto")):
		version = 0 // see script: the comparison is for one object
	case c.kind == kindObject: // the addresses in there are the linker's
		version = 0
	}
	if version != 0 {
		if _, err := d.script(c.cc.suite, b.dir, c.script(flag)); err != nil {
			b.peerFailed, version = err.Error(), 0
		}
	}
	if version == 0 {
		if _, err := d.script(c.cc.suite, b.dir, c.script("")); err != nil {
			return err
		}
	}
	b.peerVersion = version
	results, err := filepath.Glob(filepath.Join(b.dir, "out", "*"))
	if err != nil {
		return err
	}
	for _, path := range results {
		switch filepath.Base(path) {
		case "prog":
			b.program = path
		case "peer.so":
			b.peer = path
		case "base.so":
			b.peerBase = path
		default:
			b.objects = append(b.objects, path)
		}
	}
	if version != 0 && b.peer == "" {
		b.peer, b.peerBase = b.program, b.program // GNU ld has merged the sections
	}
	return nil
}

// script returns the commands that compile and link a case, with a flag for an .sframe of the assembler's.
func (c *testCase) script(peerFlag string) string {
	var s strings.Builder
	sources, libs := "$(find . -name '*.c')", "-lm -ldl -lpthread"
	flags := c.flags
	if c.cc.family == "clang" && c.abi == "s390x" {
		flags += " -fasynchronous-unwind-tables" // which is not its default there, for C
	}
	if c.program == "zlib" {
		flags += " -DHAVE_UNISTD_H -DHAVE_STDARG_H"
	}
	if c.program == "lua" {
		flags += " -DLUA_USE_LINUX"
	}
	if c.program == "angelscript" {
		sources, libs = "$(find . -name '*.cpp')", "-lpthread"
		flags += " -w -Iangelscript/include -Iadd_on"
		if c.abi != "amd64" {
			flags += " -DAS_MAX_PORTABILITY" // otherwise it calls functions by assembly of its own
		}
	}
	driver := c.cc.driver(c.abi, c.program == "angelscript")
	llvm := c.cc.family == "clang" && peerFlag != ""
	compile := func(extra string) {
		fmt.Fprintf(&s, "mkdir -p o; rm -f o/*.o\nfor f in %s; do %s %s %s -c $f -o o/$(basename ${f%%.c*}).o; done\n",
			sources, driver, flags, extra)
	}
	link := func(extra string) {
		fmt.Fprintf(&s, "%s %s %s o/*.o %s -o prog\n", driver, flags, extra, libs)
	}
	s.WriteString("rm -rf out; mkdir out\n")
	if strings.Contains(flags, "-mbig-endian") { // the C library has it for the other byte order only
		s.WriteString("mkdir -p stub/gnu; : >stub/gnu/stubs-lp64_be.h\n")
		flags += " -Istub"
	}
	gas := peerFlag
	if llvm {
		gas = ""
	}
	if c.kind == kindPGO {
		profile := " -fprofile-use -Wno-missing-profile"
		compile("-fprofile-generate")
		link("-fprofile-generate")
		if c.cc.family == "clang" {
			profile = " -fprofile-use=p.profdata"
			fmt.Fprintf(&s, "LLVM_PROFILE_FILE=p.profraw ./prog %s >/dev/null\nllvm-profdata%s merge -o p.profdata p.profraw\n",
				c.arguments(), c.cc.version)
		} else {
			fmt.Fprintf(&s, "./prog %s >/dev/null\n", c.arguments()) // counts are beside the objects
		}
		compile(profile + " " + gas)
		link(profile + " " + gas)
	} else {
		compile(gas)
		if c.kind != kindObject {
			link(gas)
		}
	}
	if c.kind == kindObject {
		s.WriteString("cp o/*.o out\n")
		return s.String()
	}
	s.WriteString("cp prog out\n")
	if llvm {
		// lld only puts sections one after the other, and GNU ld refuses this version: the comparison is for one object.
		fmt.Fprintf(&s, "%s %s -fPIC %s -c sqlite3-binding.c -o p.o\nld.lld%s -shared p.o -o out/peer.so\n"+
			"objcopy -R .sframe out/peer.so out/base.so\n", driver, flags, peerFlag, c.cc.version)
	}
	return s.String()
}

// arguments are what the program is run with.
func (c *testCase) arguments() string {
	if c.program == "lua" {
		return "test.lua"
	}
	return ""
}
