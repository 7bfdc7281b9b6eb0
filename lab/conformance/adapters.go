package conformance

import (
	"fmt"
	"os"
	"path/filepath"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
)

// readerNames are the names of all readers, in the order of the tables.
var readerNames = []string{"own", "libsframe-2.44", "libsframe-2.47", "glibc", "llvm-readobj", "walker"}

// StartReader starts the reader with the given name. The path top is the root of the repository; compiled
// programs are written to the directory dir.
func StartReader(name, top, dir string) (*Reader, error) {
	sources := filepath.Join(top, "conformance/adapters")
	switch name {
	case "own":
		return &Reader{
			Hello: ownHello,
			Ask:   func(q *vector.Question) (vector.Reply, error) { return Own(q), nil },
		}, nil
	case "libsframe-2.44":
		return startLibsframe("trixie", "gcc", "1", sources, dir)
	case "libsframe-2.47":
		return startLibsframe("sid", "gcc-16", "3", sources, dir)
	case "glibc":
		glibc := glibcSources()
		if _, err := os.Stat(filepath.Join(glibc, "sframe-read.c")); err != nil {
			return nil, fmt.Errorf("%s: no sources of glibc's reader; use scripts/conformance --prepare", glibc)
		}
		out := filepath.Join(dir, "glibc")
		// The flags stand in for definitions and includes from the rest of glibc.
		if err := kit.Run("", "gcc", "-O1", "-Dlibc_hidden_proto(x)=", "-include", "stddef.h", "-I"+glibc, "-o", out,
			filepath.Join(sources, "glibc.c"), filepath.Join(glibc, "sframe-read.c")); err != nil {
			return nil, err
		}
		return startAdapter(out)
	case "llvm-readobj":
		words, err := suite.Program("sid", "llvm-readobj-23")
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "file")
		return &Reader{
			Hello: llvmHello,
			Ask:   func(q *vector.Question) (vector.Reply, error) { return llvm(words, q, file), nil },
		}, nil
	case "walker":
		out := filepath.Join(dir, "walker")
		if err := kit.Run("", "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-O1",
			"-I"+filepath.Join(top, "walker"), "-o", out, filepath.Join(sources, "walker.c")); err != nil {
			return nil, err
		}
		return startAdapter(out)
	}
	return nil, fmt.Errorf("unknown reader %q; use one of %q", name, readerNames)
}

// glibcSources returns the source directory of glibc's reader.
func glibcSources() string {
	if dir := os.Getenv("CFI2SFRAME_GLIBC"); dir != "" {
		return dir
	}
	return "/var/cache/cfi2sframe-conformance/glibc"
}

// startLibsframe compiles the adapter in a Debian suite, and starts it with the libraries of that suite.
func startLibsframe(name, cc, api, sources, dir string) (*Reader, error) {
	work, err := suite.TempDir(name)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := kit.Run(sources, "cp", "protocol.h", "libsframe.c", work); err != nil {
		return nil, err
	}
	script := fmt.Sprintf("%s -Wall -Wextra -O1 -DAPI=%s -o libsframe libsframe.c -l:libsframe.so.%s", cc, api, api)
	if err := suite.Script(name, work, script); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "libsframe-"+name)
	if err := kit.Run(work, "cp", "libsframe", out); err != nil {
		return nil, err
	}
	root, err := suite.Dir(name)
	if err != nil {
		return nil, err
	}
	return startAdapter(filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), "--library-path",
		filepath.Join(root, "usr/lib/x86_64-linux-gnu"), out)
}
