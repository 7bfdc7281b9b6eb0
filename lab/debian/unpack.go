package debian

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// A pkg is a package.
type pkg struct {
	Name   string
	Source string // name of the source package
	Size   int64  // of the .deb, in bytes
	ELF    int    // files, relocatable ones included
}

// unpackAll takes the ELF files out of all packages in a directory.
func unpackAll(debs, tree, results string, first, jobs int) error {
	names, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: no packages; scripts/lab debian fetch gets them", debs)
	}
	if first > 0 {
		names = names[:min(len(names), first)]
	}
	if err := os.RemoveAll(tree); err != nil { // it may have packages that are no longer in debs
		return err
	}
	list := make([]*pkg, len(names))
	for i := range list {
		list[i] = new(pkg)
	}
	numbers := make([]int, len(names))
	for i := range numbers {
		numbers[i] = i
	}
	err = kit.Each(jobs, numbers, func(_, i int) error {
		if err := list[i].unpack(names[i], tree); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(results+".packages.json", list)
}

// unpack unpacks a package into a directory of its name below tree, and removes all but ELF files.
func (p *pkg) unpack(deb, tree string) error {
	fields, err := exec.Command("dpkg-deb", "--show", "--showformat", `${Package} ${source:Package}`, deb).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb: %w", err)
	}
	p.Name, p.Source, _ = strings.Cut(string(fields), " ")
	info, err := os.Stat(deb)
	if err != nil {
		return err
	}
	p.Size = info.Size()
	dir := filepath.Join(tree, p.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("dpkg-deb", "--extract", deb, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, out)
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type().IsRegular() && isELF(path) {
			p.ELF++
			return nil
		}
		return os.Remove(path)
	})
}

// isELF includes 32-bit files, which kit.ELFFiles skips.
func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && bytes.Equal(magic[:], []byte("\x7fELF"))
}

func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
