package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A pkg is a package, and what was in it.
type pkg struct {
	Folder   string `json:"folder"` // below the tree; its name
	Version  string `json:"version"`
	Source   string `json:"source"` // name of the source package
	Arch     string `json:"arch"`
	Size     int64  `json:"size"`     // of the .deb, in bytes
	Files    int    `json:"files"`    // regular ones
	ELF      int    `json:"elf"`      // of those, taken
	Archives int    `json:"archives"` // of those, ar archives, which are left out
}

// unpackAll takes the ELF files out of all packages in a folder.
func unpackAll(s *settings, debs string) error {
	names, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: no packages; scripts/lab debian fetch gets them", debs)
	}
	slices.Sort(names)
	if s.first > 0 {
		names = names[:min(len(names), s.first)]
	}
	if err := os.RemoveAll(s.to); err != nil { // what is in no package any more is not to be surveyed
		return err
	}
	list := make([]pkg, len(names))
	errs := make([]error, len(names))
	work := make(chan int)
	var wg sync.WaitGroup
	for range s.jobs {
		wg.Go(func() {
			for i := range work {
				if errs[i] = list[i].unpack(names[i], s.to); errs[i] != nil {
					errs[i] = fmt.Errorf("%s: %w", names[i], errs[i])
				}
			}
		})
	}
	for i := range names {
		work <- i
	}
	close(work)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return writeJSON(s.list, list)
}

// unpack takes the ELF files out of a package into a folder of its name below to.
func (p *pkg) unpack(deb, to string) error {
	fields, err := exec.Command("dpkg-deb", "--show", "--showformat", `${Package}\n${Version}\n${source:Package}\n${Architecture}\n`, deb).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb: %w", err)
	}
	f := strings.Split(string(fields), "\n")
	if len(f) < 4 || f[0] == "" || strings.ContainsRune(f[0], '/') {
		return fmt.Errorf("dpkg-deb says %q; name, version, source and architecture were expected", fields)
	}
	p.Folder, p.Version, p.Source, p.Arch = f[0], f[1], f[2], f[3]
	info, err := os.Stat(deb)
	if err != nil {
		return err
	}
	p.Size = info.Size()
	folder := filepath.Join(to, p.Folder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	var said bytes.Buffer
	cmd.Stderr = &said
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = p.take(root, stream)
	if err != nil {
		cmd.Process.Kill()
	}
	if failed := cmd.Wait(); failed != nil && err == nil {
		err = fmt.Errorf("dpkg-deb: %w: %s", failed, said.Bytes())
	}
	return err
}

// take writes the ELF files of a tar archive below root.
func (p *pkg) take(root *os.Root, stream io.Reader) error {
	r := tar.NewReader(stream)
	for {
		h, err := r.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, stream) // the padding, for which dpkg-deb waits
			return err
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		switch h.Typeflag {
		case tar.TypeReg:
			p.Files++
			if err := p.file(root, name, r); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case tar.TypeLink:
			// A survey counts it once.
			target := path.Clean(strings.TrimPrefix(h.Linkname, "./"))
			if _, err := root.Lstat(target); errors.Is(err, fs.ErrNotExist) {
				continue // not an ELF file
			}
			if err := errors.Join(mkdir(root, name), root.Link(target, name)); err != nil {
				return err
			}
		}
	}
}

func mkdir(root *os.Root, name string) error { return root.MkdirAll(path.Dir(name), 0o755) }

// file writes an ELF file.
func (p *pkg) file(root *os.Root, name string, r io.Reader) error {
	b := bufio.NewReader(r)
	head, err := b.Peek(8)
	if err != nil && err != io.EOF {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
	case bytes.Equal(head, []byte("!<arch>\n")):
		p.Archives++
		return nil
	default:
		return nil
	}
	p.ELF++
	if err := mkdir(root, name); err != nil {
		return err
	}
	w, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, b)
	return errors.Join(err, w.Close())
}

// writeJSON writes a file whole.
func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return writeFile(name, append(b, '\n'))
}

func writeFile(name string, b []byte) error {
	if err := os.WriteFile(name+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
