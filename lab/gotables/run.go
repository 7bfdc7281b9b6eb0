package gotables

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

//go:embed testdata/judge
var sources embed.FS

// A target is a release of Go, and variables and flags of go build. The program of c-shared and plugin is a library, which
// testdata/judge/host.c or host.go.txt opens.
type target struct {
	release string
	words   []string
}

// modes are how the program that judges walks is built with each release.
var modes = []string{
	"GOARCH=amd64", "GOARCH=amd64 -buildmode=pie", "GOARCH=amd64 CGO_ENABLED=1", "GOARCH=amd64 CGO_ENABLED=1 -race",
	"GOARCH=amd64 CGO_ENABLED=1 -asan", "GOARCH=amd64 CGO_ENABLED=1 -buildmode=c-shared",
	"GOARCH=amd64 CGO_ENABLED=1 -buildmode=plugin", "GOARCH=arm64", "GOARCH=arm64 -buildmode=pie", "GOARCH=s390x",
}

// quickModes are those of --quick.
var quickModes = []string{"GOARCH=amd64", "GOARCH=amd64 CGO_ENABLED=1 -race", "GOARCH=arm64"}

func targets(list []string, quick bool) (all []target) {
	how := modes
	if quick {
		how = quickModes
	}
	for _, r := range list {
		for _, m := range how {
			all = append(all, target{r, strings.Fields(m)})
		}
	}
	return all
}

func (b *target) String() string { return "Go " + b.release + " " + strings.Join(b.words, " ") }

func (b *target) has(word string) bool {
	return strings.Contains(" "+strings.Join(b.words, " ")+" ", " "+word+" ")
}

// runAll builds and runs the programs of a list of releases in a directory, converts them, and prints how walks compare
// with those of the runtime. It returns how many are wrong. An empty list stands for all, or with quick for the newest.
func runAll(dir string, list []string, quick, verbose bool) (wrong uint64, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	if len(list) == 0 && quick {
		list = releases[len(releases)-1:]
	} else if len(list) == 0 {
		list = releases
	}
	for _, b := range targets(list, quick) {
		n, err := b.judge(filepath.Join(dir, strings.NewReplacer(" ", "-", "=", "-").Replace(b.String())), verbose)
		if err != nil {
			return wrong, fmt.Errorf("%v: %w", &b, err)
		}
		n.print(os.Stdout, b.String())
		for what, count := range n {
			if what == strings.ToUpper(what) || strings.HasSuffix(what, strings.ToUpper(what[strings.Index(what, ": ")+2:])) {
				wrong += count
			}
		}
	}
	return wrong, nil
}

// judge builds and runs the program in a directory, unless it did before.
func (b *target) judge(dir string, verbose bool) (counts, error) {
	prog, host, records := filepath.Join(dir, "prog"), filepath.Join(dir, "host"), filepath.Join(dir, "records")
	library, plugin := b.has("-buildmode=c-shared"), b.has("-buildmode=plugin")
	if library || plugin {
		prog += ".so"
	}
	_, err := os.Stat(records)
	if errors.Is(err, fs.ErrNotExist) {
		if err := b.sources(dir); err != nil {
			return nil, err
		}
		if err = b.command(dir, "go", b.flags("-o", prog, ".")...); err != nil {
			return nil, err
		}
		args := []string{prog}
		switch {
		case library:
			args = []string{host, prog}
			err = b.command(dir, "gcc", "-o", host, "c/host.c", "-ldl")
		case plugin:
			args = []string{host, prog}
			words := b.words
			b.words = append(append([]string{}, words...), "-buildmode=exe")
			err = b.command(dir, "go", b.flags("-o", host, "./go")...)
			b.words = words
		}
		if err != nil {
			return nil, err
		}
		for word, machine := range map[string]string{"GOARCH=arm64": "aarch64", "GOARCH=s390x": "s390x"} {
			if b.has(word) {
				args = append([]string{"qemu-" + machine + "-static", "-L", "/usr/" + machine + "-linux-gnu"}, args...)
			}
		}
		if err := b.command(dir, args[0], args[1:]...); err != nil {
			return nil, err
		}
		if err := os.Rename(records+".new", records); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	j, files := &judge{verbose: verbose}, make(map[string]*module)
	for _, path := range []string{prog, host} {
		if path == host && !plugin {
			continue
		}
		m, e, err := convertTo(path, sframe.V3)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[path], j.arch, j.order = m, arch.Of(e.Machine), e.ByteOrder
	}
	return j.judgeFile(records, files)
}

// sources writes the sources to a directory.
func (b *target) sources(dir string) error {
	const from = "testdata/judge"
	return fs.WalkDir(sources, from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimSuffix(strings.TrimPrefix(path, from), ".txt"))
		if name := filepath.Base(to); strings.HasPrefix(name, "host.") {
			to = filepath.Join(dir, name[len("host."):], name) // a directory for each language
		}
		if b.has("CGO_ENABLED=1") {
			text = []byte(strings.Replace(string(text), "//C import", "import", 1))
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module judge\n\ngo 1.18\n"), 0o666); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o666)
	})
}

// flags returns the arguments of go build. Without inlining, callers are return addresses.
func (b *target) flags(args ...string) []string {
	all := []string{"build", "-gcflags=all=-l"}
	if b.release >= "1.23" { // systemstack has a name that the linker refuses
		all = append(all, "-ldflags=-checklinkname=0")
	}
	for _, w := range b.words {
		if strings.HasPrefix(w, "-") {
			all = append(all, w)
		}
	}
	return append(all, args...)
}

func (b *target) command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=go"+b.release, "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0",
		"JUDGE_OUT="+filepath.Join(dir, "records.new"), "ASAN_OPTIONS=detect_leaks=0")
	for _, w := range b.words {
		if !strings.HasPrefix(w, "-") {
			cmd.Env = append(cmd.Env, w)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
