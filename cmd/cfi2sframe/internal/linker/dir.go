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
	"syscall"
	"unicode"
)

// targets are the prefixes of cross linkers.
var targets = []string{"x86_64-linux-gnu", "aarch64-linux-gnu", "s390x-linux-gnu"}

// links returns the names of the links in a directory for -B.
func links() []string {
	all := append([]string{Compiler}, Names...)
	for _, target := range targets {
		for _, name := range Names {
			all = append(all, target+"-"+name)
		}
	}
	return all
}

// Dir returns a directory for a compiler's -B, with links to exe that are named like linkers. The directory is the
// installed one (libexec/cfi2sframe or lib/cfi2sframe next to bin) or is created in the user's cache. The path contains
// no blanks, which would split CC="gcc -B$(...)".
func Dir(exe string) (string, error) {
	for _, lib := range []string{"libexec", "lib"} {
		dir := filepath.Join(filepath.Dir(exe), "..", lib, "cfi2sframe")
		if isInstalled(dir, exe) && noBlank(dir) == nil {
			return dir, nil
		}
	}
	// The path depends only on exe.
	name := fmt.Sprintf("linkers-%x", sha256.Sum256([]byte(exe)))[:len("linkers-")+16]
	cache, err := os.UserCacheDir()
	if home := os.Getenv("HOME"); err == nil && os.Getenv("XDG_CACHE_HOME") == "" {
		_, err = os.Stat(home) // may not exist, such as /nonexistent
	}
	if err == nil {
		err = noBlank(cache)
	}
	if err == nil {
		dir := filepath.Join(cache, "cfi2sframe", name)
		if err = fill(dir, exe); err == nil {
			return dir, nil
		}
	}
	// Builds often run without a writable home directory.
	own := filepath.Join(os.TempDir(), "cfi2sframe-"+strconv.Itoa(os.Geteuid()))
	ownErr := noBlank(own)
	if ownErr == nil {
		ownErr = ensurePrivate(own)
	}
	if ownErr != nil {
		return "", fmt.Errorf("%w; set XDG_CACHE_HOME to a writable directory whose path has no blanks (%w)", ownErr,
			err)
	}
	dir := filepath.Join(own, name)
	return dir, fill(dir, exe)
}

// noBlank returns an error if a path contains white space.
func noBlank(path string) error {
	if strings.ContainsFunc(path, unicode.IsSpace) {
		return fmt.Errorf("%q contains blanks, which separate compiler flags", path)
	}
	return nil
}

// isInstalled reports whether a directory has a link to exe for each linker.
func isInstalled(dir, exe string) bool {
	self, err := os.Stat(exe)
	if err != nil {
		return false
	}
	for _, name := range append([]string{Compiler}, Names...) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !os.SameFile(info, self) {
			return false
		}
	}
	return true
}

// ensurePrivate creates a directory that only the user can write to, or returns an error if an existing one is not
// private.
func ensurePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory that is owned by the user and writable only by the user", dir)
	}
	return nil
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
		if err := relink(exe, path); err != nil {
			return err
		}
	}
	return nil
}

// relink replaces path with a symbolic link to exe.
func relink(exe, path string) error {
	temp := path + "." + strconv.FormatUint(rand.Uint64(), 36)
	if err := os.Symlink(exe, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return err
	}
	return nil
}
