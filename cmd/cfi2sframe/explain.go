package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// A fileKind is a kind of files that are not ELF files.
type fileKind struct {
	magic string
	name  string
}

var fileKinds = []fileKind{
	{"#!", "a script"},
	{"MZ", "a PE file"},
	{"\xfe\xed\xfa\xce", "a Mach-O file"},
	{"\xfe\xed\xfa\xcf", "a Mach-O file"},
	{"\xce\xfa\xed\xfe", "a Mach-O file"},
	{"\xcf\xfa\xed\xfe", "a Mach-O file"},
	{"\xca\xfe\xba\xbe", "a Mach-O or Java class file"},
	{"\x1f\x8b", "a gzip file"},
}

// packageKinds are kinds of packages.
var packageKinds = []fileKind{
	{"!<arch>\ndebian-binary", "a Debian package"},
	{"\xed\xab\xee\xdb", "an RPM package"},
}

// explain returns a better error for an input, if its kind is the reason. Recursive says that the verb has -r.
func explain(path string, err error, recursive bool) error {
	info, statErr := os.Stat(path)
	switch {
	case statErr != nil:
		return err
	case info.IsDir() && recursive:
		return errors.New("is a directory; use -r")
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&fs.ModeNamedPipe != 0:
		return errors.New("is a pipe; use - for a pipe")
	case !errors.Is(err, elffile.ErrNotELF) && !errors.Is(err, sframe.ErrNone):
		return err
	}
	f, _, openErr := outfile.OpenRegular(path)
	if openErr != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(f, head) // small files are shorter
	if n == 0 {
		return errors.New("is empty")
	}
	for _, k := range packageKinds {
		if bytes.HasPrefix(head[:n], []byte(k.magic)) {
			return fmt.Errorf("is %s; use 'cfi2sframe pkg'", k.name)
		}
	}
	for _, k := range fileKinds {
		if bytes.HasPrefix(head[:n], []byte(k.magic)) {
			return fmt.Errorf("is %s, not an ELF file", k.name)
		}
	}
	return err
}

// explainOutput returns a better error if the output for a file is a directory, or in none.
func explainOutput(in, out string, err error) error {
	info, statErr := os.Stat(out)
	if statErr == nil && info.IsDir() {
		return fmt.Errorf("output %s is a directory; did you mean %s?", out, filepath.Join(out, filepath.Base(in)))
	}
	if _, dirErr := os.Stat(filepath.Dir(out)); errors.Is(dirErr, fs.ErrNotExist) {
		return fmt.Errorf("cannot write to %s: the directory %s does not exist", out, filepath.Dir(out))
	}
	return err
}
