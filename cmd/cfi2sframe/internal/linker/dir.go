//go:build linux

package linker

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// links returns the names of the links in a directory for -B.
func links() []string {
	all := append([]string{Compiler}, Names...)
	for _, target := range []string{"x86_64-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu"} {
		for _, name := range Names {
			all = append(all, target+"-"+name)
		}
	}
	return all
}

// Dir returns a directory for a compiler's -B, with links to exe, this program, that are named like linkers. The
// directory is the installed one (libexec/cfi2sframe or lib/cfi2sframe next to bin) or is created in the user's cache.
// The path contains no blanks, which would split CC="gcc -B$(...)".
func Dir(exe string) (string, error) {
	blank := func(path string) bool { return strings.ContainsFunc(path, unicode.IsSpace) }
	for _, lib := range []string{"libexec", "lib"} {
		dir := filepath.Join(filepath.Dir(exe), "..", lib, "cfi2sframe")
		if isSelf(filepath.Join(dir, "ld")) && !blank(dir) {
			return dir, nil
		}
	}
	cache, err := os.UserCacheDir()
	if err == nil && blank(cache) {
		err = fmt.Errorf("%q contains blanks, which separate compiler flags", cache)
	}
	dir := filepath.Join(cache, "cfi2sframe", fmt.Sprintf("linkers-%.8x", sha256.Sum256([]byte(exe))))
	if err == nil {
		err = fill(dir, exe)
	}
	if err != nil {
		return "", fmt.Errorf("%w; set XDG_CACHE_HOME to a writable directory whose path has no blanks", err)
	}
	return dir, nil
}

// fill creates the links in a directory. Existing links are replaced atomically because other processes may be using
// them.
func fill(dir, exe string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range links() {
		path := filepath.Join(dir, name)
		if to, err := os.Readlink(path); err == nil && to == exe {
			continue
		}
		temp := path + "." + strconv.FormatUint(rand.Uint64(), 36)
		if err := os.Symlink(exe, temp); err != nil {
			return err
		}
		if err := os.Rename(temp, path); err != nil {
			os.Remove(temp)
			return err
		}
	}
	return nil
}
