package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// packageOf makes a Debian package by hand, with a program, and so many bytes that take their time to be compressed.
func packageOf(t *testing.T, noise int) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(fixtures, "plt"))
	if err != nil {
		t.Fatal(err)
	}
	archive := func(files ...[]byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i, f := range files {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/lib/%d", i),
				Size: int64(len(f)), Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	words := make([]byte, noise)
	for i := range words {
		words[i] = byte(i * i >> 7 % 251)
	}
	xz := exec.Command("xz", "-0")
	xz.Stdin = bytes.NewReader(archive(program, words))
	data, err := xz.Output()
	if err != nil {
		t.Skip("xz is missing: ", err)
	}
	b := []byte("!<arch>\n")
	for _, m := range []struct {
		name     string
		contents []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar", archive()}, {"data.tar.xz", data}} {
		b = fmt.Appendf(b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, 0, 0, 0, 0o100644, len(m.contents))
		b = append(b, m.contents...)
		if len(b)&1 != 0 {
			b = append(b, '\n')
		}
	}
	return b
}

// TestPackageInterrupted ends the work at each point at which that is looked for: the package is as it was, or done.
func TestPackageInterrupted(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		for n := int64(0); ; n++ {
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in.deb"), filepath.Join(dir, "out.deb")
			if err := os.WriteFile(in, packageOf(t, 1000), 0o644); err != nil {
				t.Fatal(err)
			}
			before, err := snapshot(dir)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"pkg", "-q", in, "-o", out}
			if inPlace {
				args = []string{"pkg", "-q", "--in-place", in}
			}
			ctx := &countdown{Context: context.Background(), done: make(chan struct{})}
			ctx.left.Store(n)
			var stdout, stderr bytes.Buffer
			status := run(ctx, args, &stdout, &stderr)
			if status == exitDone {
				if n < 5 {
					t.Errorf("in place %t: the context is looked at %d times only", inPlace, n)
				}
				break
			}
			after, err := snapshot(dir)
			if err != nil {
				t.Fatal(err)
			}
			if want := "cfi2sframe: " + in + ": interrupted, nothing written\n"; status != exitError ||
				changes(before, after) != "" || stderr.String() != want {
				t.Errorf("in place %t, after %d: status %d, stderr %q\n%s", inPlace, n, status, stderr.String(),
					changes(before, after))
			}
			if n > 1000 {
				t.Fatal("it never ends")
			}
		}
	}
}

// TestPackageSignal sends a signal while a package is compressed, which it does not wait for.
func TestPackageSignal(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, tmp := t.TempDir(), t.TempDir()
	in := filepath.Join(dir, "in.deb")
	if err := os.WriteFile(in, packageOf(t, 40<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{"cfi2sframe", "pkg", "-q", "--in-place", in} // TestMain goes by the name
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := 0; !hasOpen(cmd.Process.Pid, tmp); i++ { // what is compressed is kept there
		if i == 3000 {
			t.Fatal("it does not begin")
		}
		time.Sleep(10 * time.Millisecond)
	}
	before, err := snapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) ||
		stderr.String() != "cfi2sframe: "+in+": interrupted, nothing written\n" {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
	after, err := snapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := changes(before, after); d != "" {
		t.Error(d)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
