package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// sources copies what the command is built from to a folder.
func sources(t *testing.T, dir string) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git" || name == "lab"):
			return filepath.SkipDir
		case e.Name() == ".git": // which leads from a worktree to its repository
			return nil
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o777)
		case strings.HasSuffix(name, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), b, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// in runs a program in a folder, without the settings of the user.
func in(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOENV=off", "GOFLAGS=", "GOTOOLCHAIN=local", "GOSUMDB=off",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.org", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.org", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	cmd.Env = append(cmd.Env, env...)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, b)
	}
	return string(b)
}

// repository makes a folder a repository of its own, with one commit.
func repository(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
		t.Fatalf("%s is a repository already", dir)
	}
	in(t, dir, nil, "git", "init", "-q", ".")
	in(t, dir, nil, "git", "add", ".")
	in(t, dir, nil, "git", "commit", "-q", "-m", "all")
}

// TestVersion builds the program as its users do, and expects it to tell what it was built from.
func TestVersion(t *testing.T) {
	long.Test(t)
	peer.Look(t, "git")
	goTool := peer.Look(t, "go")
	dir := t.TempDir()
	sources(t, dir)
	exe := filepath.Join(t.TempDir(), "cfi2sframe")
	built := "\nBuilt with " + strings.TrimSpace(in(t, dir, nil, goTool, "env",
		"GOVERSION")) + " for " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	expect := func(what, first string) {
		t.Helper()
		if got := in(t, dir, nil, exe, "--version"); got != "cfi2sframe "+first+built {
			t.Errorf("%s: %q; want %q", what, got, "cfi2sframe "+first+built)
		}
	}
	// -trimpath has one build use what another one, or the test itself, has compiled.
	build := func(args ...string) {
		t.Helper()
		in(t, dir, nil, goTool, append(append([]string{"build", "-trimpath", "-o", exe}, args...),
			"./cmd/cfi2sframe")...)
	}
	const release = "-X main.version=2.3 -X main.commit=fedcba987654 -X main.date=2027-01-01"

	build()
	expect("no repository", "(devel)")
	build("-ldflags", release)
	expect("a release without repository", "2.3 (fedcba987654, 2027-01-01)")
	build("-ldflags", "-X main.version=2.3")
	expect("a version alone", "2.3")
	build("-ldflags", "-X main.date=2027-01-01")
	expect("a date alone", "(devel) (2027-01-01)")

	repository(t, dir)
	commit := in(t, dir, nil, "git", "rev-parse", "HEAD")[:12]
	const date, stamp = "2026-01-02T03:04:05Z", "20260102030405"
	build()
	expect("a clone", fmt.Sprintf("v0.0.0-%s-%s (%s, %s)", stamp, commit, commit, date))
	in(t, dir, nil, "git", "tag", "v1.2.3")
	build()
	expect("a clone at a tag", fmt.Sprintf("v1.2.3 (%s, %s)", commit, date))
	build("-buildvcs=false")
	expect("a clone, -buildvcs=false", "(devel)")
	build("-ldflags", release)
	expect("a release from a clone", fmt.Sprintf("2.3 (%s, %s)", commit, date))
	build("-buildvcs=false", "-ldflags", release)
	expect("a release from a clone, -buildvcs=false", "2.3 (fedcba987654, 2027-01-01)")
	if err := os.WriteFile(filepath.Join(dir, "changed"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	build()
	expect("a clone with changes", fmt.Sprintf("v1.2.3+dirty (%s-dirty, %s)", commit, date))

	// As a part of another module, which has a repository and a version of its own.
	other := t.TempDir()
	mod := fmt.Sprintf("module example.org/other\n\ngo 1.26\n\nrequire cfi2sframe v1.4.0\n\nreplace cfi2sframe => %s\n",
		dir)
	tools := "//go:build tools\n\npackage other\n\nimport _ \"cfi2sframe/cmd/cfi2sframe\"\n"
	for name, text := range map[string]string{"go.mod": mod, "tools.go": tools} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	proxy := "GOPROXY=file://" + strings.TrimSpace(in(t, other, nil, goTool, "env", "GOMODCACHE")) + "/cache/download"
	repository(t, other)
	in(t, other, []string{proxy}, goTool, "build", "-mod=mod", "-trimpath", "-o", exe, "cfi2sframe/cmd/cfi2sframe")
	expect("a part of another module", "v1.4.0")
}

// TestInstalled installs the program from a module proxy. For that it gets a module path that has an address.
func TestInstalled(t *testing.T) {
	long.Test(t)
	goTool := peer.Look(t, "go")
	const module, version = "example.org/cfi2sframe", "v1.5.0"
	dir, versions := t.TempDir(), filepath.Join(t.TempDir(), module, "@v")
	sources(t, dir)
	if err := os.MkdirAll(versions, 0o777); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	var mod []byte
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b = bytes.ReplaceAll(b, []byte(`"cfi2sframe/`), []byte(`"`+module+`/`))
		name := strings.TrimPrefix(path, dir+"/")
		if name == "go.mod" {
			b = bytes.Replace(b, []byte("module cfi2sframe\n"), []byte("module "+module+"\n"), 1)
			mod = b
		}
		w, err := z.Create(module + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(`{"Version":"` + version + `"}`),
		version + ".mod": mod, version + ".zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	cache := strings.TrimSpace(in(t, dir, nil, goTool, "env", "GOMODCACHE"))
	in(t, bin, []string{
		"GOBIN=" + bin, "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw",
		"GOPROXY=file://" + strings.TrimSuffix(versions, "/"+module+"/@v") + ",file://" + cache + "/cache/download",
	}, goTool, "install", "-trimpath", module+"/cmd/cfi2sframe@"+version)
	if got := in(t, bin, nil, "./cfi2sframe", "--version"); !strings.HasPrefix(got, "cfi2sframe "+version+
		"\nBuilt with go") {
		t.Errorf("%q; want version %s", got, version)
	}
}

// TestBuildInfo has what Go notes of builds that cannot be made here: of repositories with short names of commits.
func TestBuildInfo(t *testing.T) {
	var b origin
	b.of(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "r7"}, {Key: "vcs.modified", Value: "true"},
	}})
	if want := (origin{commit: "r7-dirty"}); b != want {
		t.Errorf("%+v; want %+v", b, want)
	}
}
