package toolchains

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cfi2sframe/sframe"
)

// folders are where things are.
type folders struct {
	peers      string // the suites of scripts/peers
	toolchains string // the suites of scripts/lab toolchains, and what is kept
	sources    string // a folder for each program
}

func (d *folders) root(suite string) string {
	if suite == "sid" {
		return filepath.Join(d.peers, suite)
	}
	return filepath.Join(d.toolchains, suite)
}

// A built case is what a compiler made of a program.
type built struct {
	Seconds float64 // to compile
	Program string  // the linked file, or ""
	Objects []string
	// Peer has the section that the compiler's own assembler wrote, of version PeerVersion.
	// It is replaced in PeerBase.
	Peer, PeerBase string
	PeerVersion    sframe.Version
	PeerFailed     string // what the assembler said, if it made nothing
}

// script runs a shell script in a folder of a suite.
func (d *folders) script(suite, dir, script string) ([]byte, error) {
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

// build compiles a case, or returns what was compiled before.
func (d *folders) build(c *testCase) (*built, error) {
	keep := filepath.Join(d.toolchains, "built", c.id())
	if b, err := load(keep); err == nil {
		return b, nil
	}
	dir, err := os.MkdirTemp(filepath.Join(d.root(c.cc.suite), "tmp"), "toolchains-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(d.sources, c.program))); err != nil {
		return nil, err
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
	begin := time.Now()
	failed := ""
	if version != 0 {
		if _, err := d.script(c.cc.suite, dir, c.script(flag)); err != nil {
			failed, version = err.Error(), 0
		}
	}
	if version == 0 {
		if _, err := d.script(c.cc.suite, dir, c.script("")); err != nil {
			return nil, err
		}
	}
	b := &built{Seconds: time.Since(begin).Seconds(), PeerVersion: version, PeerFailed: failed}
	if err := os.RemoveAll(keep + ".new"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(keep+".new", 0o777); err != nil {
		return nil, err
	}
	results, err := filepath.Glob(filepath.Join(dir, "out", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range results {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(keep+".new", filepath.Base(path)), data, 0o777)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := writeJSON(filepath.Join(keep+".new", "built.json"), b); err != nil {
		return nil, err
	}
	if err := os.Rename(keep+".new", keep); err != nil {
		return nil, err
	}
	return load(keep)
}

// load returns what is kept of a case.
func load(keep string) (*built, error) {
	var b built
	if err := readJSON(filepath.Join(keep, "built.json"), &b); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(keep)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(keep, e.Name())
		switch {
		case e.Name() == "prog":
			b.Program = path
		case e.Name() == "peer.so":
			b.Peer = path
		case e.Name() == "base.so":
			b.PeerBase = path
		case strings.HasSuffix(e.Name(), ".o"):
			b.Objects = append(b.Objects, path)
		}
	}
	if b.Program == "" && len(b.Objects) == 0 {
		return nil, errors.New("nothing is kept in " + keep)
	}
	if b.PeerVersion != 0 && b.Peer == "" {
		b.Peer, b.PeerBase = b.Program, b.Program // GNU ld has merged the sections; of an object, there is nothing to compare
	}
	return &b, nil
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
	llvm := c.cc.family == "clang" && peerFlag != ""
	compile := func(extra string) {
		fmt.Fprintf(&s, "mkdir -p o; rm -f o/*.o\nfor f in %s; do %s %s %s -c $f -o o/$(basename ${f%%.c*}).o; done\n", sources, c.cc.driver(c.abi, c.program == "angelscript"), flags, extra)
	}
	link := func(extra string) {
		fmt.Fprintf(&s, "%s %s %s %s o/*.o %s -o prog\n", c.cc.driver(c.abi, c.program == "angelscript"), flags, c.link, extra, libs)
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
			fmt.Fprintf(&s, "LLVM_PROFILE_FILE=p.profraw ./prog %s >/dev/null\nllvm-profdata%s merge -o p.profdata p.profraw\n", c.arguments(), c.cc.version)
		} else {
			fmt.Fprintf(&s, "./prog %s >/dev/null\n", c.arguments()) // the counts are beside the objects, by the names of these
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
			"objcopy -R .sframe out/peer.so out/base.so\n", c.cc.driver(c.abi, false), flags, peerFlag, c.cc.version)
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

// lines counts the lines of a program's sources, for the table.
func (d *folders) lines(program string) (int, error) {
	n := 0
	err := filepath.WalkDir(filepath.Join(d.sources, program), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !slices.Contains([]string{".c", ".h", ".cpp"}, filepath.Ext(path)) {
			return err
		}
		b, err := os.ReadFile(path)
		n += bytes.Count(b, []byte("\n"))
		return err
	})
	return n, err
}
