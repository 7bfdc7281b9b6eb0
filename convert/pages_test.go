package convert_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestLargePages runs converted aarch64 programs with pages of 4, 16 and 64 KiB, the sizes that kernels for that
// machine use. The new segment must be valid for the largest pages, and the program headers must be where the emulator
// and old kernels expect them.
func TestLargePages(t *testing.T) {
	qemu := largePages(t)
	const (
		cc  = "aarch64-linux-gnu-gcc-16 -O2 "
		lld = "mkdir b; ln -s /usr/bin/ld.lld-23 b/ld.lld; " + cc + "-B$PWD/b -fuse-ld=lld "
		lib = "; " + cc + "-shared -fPIC -DLIBRARY -o lib.so pages.c"
	)
	for i, tt := range []struct{ name, build string }{
		{"PIE", cc},
		{"PIE, separate code", cc + "-Wl,-z,separate-code "},
		{"PIE, lld", lld},
		{"PIE, mold", cc + "-fuse-ld=mold "},
		{"not PIE", cc + "-no-pie "},
		{"not PIE, lld", lld + "-no-pie "},
		{"static", cc + "-static "},
		{"static, lld", lld + "-static "},
		{"static PIE", cc + "-static-pie "},
		{"library", cc + "-DDLOPEN "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if i%3 > 0 {
				long.Test(t)
			}
			build, args, files := tt.build+"-o prog pages.c", "", []string{"prog"}
			if tt.name == "library" {
				build, args, files = build+lib, " ./lib.so", append(files, "lib.so")
			}
			dir := peer.Run(t, "sid", "{ "+build+"; } 2>log || { cat log; exit 1; }", "../testdata/c/pages.c", qemu)
			start := func(sframe int) {
				t.Helper()
				for _, page := range []int{4096, 16384, 65536} {
					peer.Again(t, "sid", dir, fmt.Sprintf("./%s -p %d -L /usr/aarch64-linux-gnu ./prog %d %d%s",
						filepath.Base(qemu), page, page, sframe, args))
				}
			}
			start(0)
			results := make(map[string]string)
			for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
				for _, f := range files {
					results[f+fmt.Sprint(version)], _ = run(t, filepath.Join(dir, f), convert.Options{Version: version})
				}
			}
			for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
				for _, f := range files {
					copyFile(t, results[f+fmt.Sprint(version)], filepath.Join(dir, f))
				}
				start(1)
			}
		})
	}
}

// largePages returns a QEMU older than version 9: newer versions do not emulate pages larger than the host's. Debian 12
// has QEMU 7.2, whose static build runs in every suite.
func largePages(t *testing.T) string {
	t.Helper()
	path := peer.Look(t, "qemu-aarch64-static")
	out := must.Get(exec.Command(path, "--version").Output())(t)
	m := regexp.MustCompile(`version (\d+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s --version printed %.100q", path, out)
	}
	if major, _ := strconv.Atoi(string(m[1])); major >= 9 {
		peer.Missing(t, fmt.Sprintf("%s has version %d; a version before 9 is required", path, major))
	}
	return path
}
