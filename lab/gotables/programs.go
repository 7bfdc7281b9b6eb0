package gotables

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// releases are the last of each minor release of Go. The go command of each is compared, in all variants.
var (
	releases = strings.Fields("1.18.10 1.19.13 1.20.14 1.21.13 1.22.12 1.23.12 1.24.13 1.25.14 1.26.8 1.27.4")
	variants = []string{"GOARCH=amd64", "GOARCH=amd64 -buildmode=pie", "GOARCH=arm64", "GOARCH=s390x"}
)

// programs are a release of Go, a module, a directory of the module, and variables and flags of go build.
var programs = []string{
	"1.27.4 github.com/gohugoio/hugo@v0.147.9 . GOARCH=amd64",
	"1.27.4 github.com/gohugoio/hugo@v0.147.9 . GOARCH=amd64 -buildmode=pie",
	"1.27.4 github.com/gohugoio/hugo@v0.147.9 . GOARCH=arm64",
	"1.26.8 github.com/caddyserver/caddy/v2@v2.11.9 ./cmd/caddy GOARCH=amd64 CGO_ENABLED=1",
	"1.26.8 github.com/caddyserver/caddy/v2@v2.11.9 ./cmd/caddy GOARCH=arm64",
	"1.26.8 github.com/caddyserver/caddy/v2@v2.11.9 ./cmd/caddy GOARCH=arm64 -buildmode=pie",
	"1.24.13 github.com/restic/restic@v0.18.0 ./cmd/restic GOARCH=amd64 -buildmode=pie",
	"1.24.13 github.com/restic/restic@v0.18.0 ./cmd/restic GOARCH=arm64",
	"1.25.14 github.com/containers/podman/v5@v5.5.0 ./cmd/podman GOARCH=amd64 CGO_ENABLED=1 -buildmode=pie " +
		"-tags=exclude_graphdriver_btrfs,containers_image_openpgp",
	"1.23.12 github.com/containers/buildah@v1.40.0 ./cmd/buildah GOARCH=amd64 CGO_ENABLED=1 " +
		"-tags=exclude_graphdriver_btrfs,containers_image_openpgp",
}

// buildAll builds what is missing in the directory, from the module proxy, and returns the names of all files.
func buildAll(dir string) (names []string, err error) {
	lines := programs
	for _, r := range releases {
		for _, v := range variants {
			lines = append(lines, r+" std cmd/go "+v)
		}
	}
	for _, line := range lines {
		name := kit.ProgramPath(dir, line)
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			if err := build(name, strings.Fields(line)); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

func build(name string, words []string) error {
	name, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "GOTOOLCHAIN=go"+words[0], "GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
	module := struct{ Dir string }{"/"}
	if words[1] != "std" {
		cmd := exec.Command("go", "mod", "download", "-json", words[1])
		cmd.Env, cmd.Dir = env, "/"
		b, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, b)
		}
		if err := json.Unmarshal(b, &module); err != nil {
			return err
		}
	}
	args := []string{"build", "-o", name}
	for _, w := range words[3:] {
		if strings.HasPrefix(w, "-") {
			args = append(args, w)
		} else {
			env = append(env, w)
		}
	}
	cmd := exec.Command("go", append(args, words[2])...)
	cmd.Env, cmd.Dir = env, module.Dir
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, b)
	}
	return nil
}
