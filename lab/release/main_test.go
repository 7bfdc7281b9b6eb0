package release

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/product"
	"cfi2sframe/lab/schema"
)

// build builds the command, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cfi2sframe")
	if err := product.Build(program, "-trimpath", "-buildvcs=false"); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestSchema checks a bill of materials by the schema of CycloneDX 1.6, and that it has what "go version -m" prints.
func TestSchema(t *testing.T) {
	program := build(t)
	var b bytes.Buffer
	if err := write(&b, "1.2", program); err != nil {
		t.Fatal(err)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var schemas []any
	folder := filepath.Join(strings.TrimSpace(string(dir)), "schema")
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if os.IsNotExist(err) {
			text, err = os.ReadFile(filepath.Join(folder, "jsf-0.82.schemax.json")) // which is its name there
		}
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, schema.Value(t, text))
	}
	s := schema.Compile(t, schemas...)
	if err := s.Validate(schema.Value(t, b.Bytes())); err != nil {
		t.Error(err)
	}
	if s.Validate(schema.Value(t, bytes.Replace(b.Bytes(), []byte(`"library"`), []byte(`"book"`), 1))) == nil {
		t.Error("the schema takes anything")
	}
	var have struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(b.Bytes(), &have); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := 0
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "dep" {
			continue
		}
		deps++
		found := false
		for _, c := range have.Components {
			found = found || c.Name == f[1] && c.Version == f[2]
		}
		if !found {
			t.Errorf("%s %s is missing", f[1], f[2])
		}
	}
	if deps < 5 || len(have.Components) != deps+1 {
		t.Errorf("%d components; want %d modules and the standard library", len(have.Components), deps)
	}
}

// TestInstall installs to a folder, as packages are made, and takes everything away again.
func TestInstall(t *testing.T) {
	gnu := peer.Tool(t, "", "make")
	dir, rpm := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(rpm, "rpm"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(target string) {
		cmd := gnu(target, "PREFIX=/usr", "DESTDIR="+dir, "VERSION=9.8")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "PATH="+rpm+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	run("all")
	run("install")
	for path, mode := range map[string]os.FileMode{
		"bin/cfi2sframe": 0o755, "share/man/man1/cfi2sframe.1": 0o644,
		"share/bash-completion/completions/cfi2sframe": 0o644,
		"share/zsh/site-functions/_cfi2sframe":         0o644, "share/fish/vendor_completions.d/cfi2sframe.fish": 0o644,
		"share/doc/cfi2sframe/README.md": 0o644, "share/doc/cfi2sframe/LICENSE": 0o644,
		"bin/sframe-run": 0o755, "share/man/man1/sframe-run.1": 0o644,
		"bin/sframe-rootfs": 0o755, "bin/convert-deb": 0o755, "bin/cfi2sframe-cc": 0o755, "bin/cfi2sframe-toolexec": 0o755,
		"share/cfi2sframe/make/cfi2sframe.mk": 0o644, "share/cfi2sframe/cluster/shards": 0o755,
		"../etc/rpm/macros.sframe": 0o644,
	} {
		info, err := os.Stat(filepath.Join(dir, "usr", path))
		if err != nil || info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %v, mode %v", path, err, info)
		}
	}
	// What is no command, no example and no document is for the tests.
	for _, name := range []string{"lib/build.sh", "make/test", "rootfs/sframe-rootfs", "rpm/brotli.spec"} {
		if _, err := os.Stat(filepath.Join(dir, "usr/share/cfi2sframe", name)); err == nil {
			t.Errorf("%s is installed", name)
		}
	}
	if runtime.GOARCH == "amd64" {
		if out, err := exec.Command(filepath.Join(dir, "usr/bin/cfi-step"), "--steps", "10",
			"/bin/true").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("10 steps on amd64")) {
			t.Errorf("cfi-step: %v\n%s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "usr/share/man/man1/cfi-step.1")); err != nil {
			t.Error(err)
		}
	}
	program := filepath.Join(dir, "usr/bin/cfi2sframe")
	help, err := exec.Command(program, "ld", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(help, []byte("--print-dir")) {
		own, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cc", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "aarch64-linux-gnu-ld"} {
			info, err := os.Stat(filepath.Join(dir, "usr/libexec/cfi2sframe", name))
			if err != nil || !os.SameFile(own, info) {
				t.Errorf("link %s: %v", name, err)
			}
		}
	}
	run("uninstall")
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
