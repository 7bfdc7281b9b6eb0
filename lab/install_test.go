package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestInstall installs into a directory, as packagers do, and uninstalls everything.
func TestInstall(t *testing.T) {
	gnu := peer.Tool(t, "", "make")
	dir, rpm := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(rpm, "rpm"), []byte("#!/bin/sh\n"), 0o755))
	run := func(target string) {
		cmd := gnu(target, "PREFIX=/usr", "DESTDIR="+dir, "VERSION=9.8")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "PATH="+rpm+":"+os.Getenv("PATH"))
		must.Run(t, cmd)
	}
	run("all")
	run("install")
	for path, mode := range map[string]os.FileMode{
		"bin/cfi2sframe": 0o755, "share/man/man1/cfi2sframe.1": 0o644,
		"share/bash-completion/completions/cfi2sframe": 0o644,
		"share/zsh/site-functions/_cfi2sframe":         0o644, "share/fish/vendor_completions.d/cfi2sframe.fish": 0o644,
		"share/doc/cfi2sframe/walker/examples/sampler.c": 0o644,
		"share/doc/cfi2sframe/README.md":                 0o644, "share/doc/cfi2sframe/LICENSE": 0o644,
		"bin/sframe-run": 0o755, "share/man/man1/sframe-run.1": 0o644,
		"bin/sframe-rootfs": 0o755, "bin/convert-deb": 0o755, "bin/cfi2sframe-cc": 0o755,
		"bin/cfi2sframe-toolexec":              0o755,
		"share/cfi2sframe/linux/cfi2sframe.mk": 0o644, "../etc/rpm/macros.sframe": 0o644,
	} {
		info, err := os.Stat(filepath.Join(dir, "usr", path))
		if err != nil || info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %v, mode %v", path, err, info)
		}
	}
	// Files that only tests use are not installed.
	for _, name := range []string{"lib/build.sh", "make/test", "rootfs/sframe-rootfs", "rpm/brotli.spec"} {
		if _, err := os.Stat(filepath.Join(dir, "usr/share/cfi2sframe", name)); err == nil {
			t.Errorf("%s is installed", name)
		}
	}
	program := filepath.Join(dir, "usr/bin/cfi2sframe")
	help := must.Get(exec.Command(program, "ld", "--help").Output())(t)
	if bytes.Contains(help, []byte("--print-dir")) {
		own := must.Get(os.Stat(program))(t)
		for _, name := range []string{"cc", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "aarch64-linux-gnu-ld"} {
			info, err := os.Stat(filepath.Join(dir, "usr/libexec/cfi2sframe", name))
			if err != nil || !os.SameFile(own, info) {
				t.Errorf("link %s: %v", name, err)
			}
		}
	}
	run("uninstall")
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s remains", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
