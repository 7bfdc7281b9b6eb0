package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// fileKinds maps magic bytes at an offset to messages for files that are not ELF files.
var fileKinds = []struct {
	off            int
	magic, message string
}{
	{0, "#!", "is a script, not an ELF file"},
	{0, "MZ", "is a PE file, not an ELF file"},
	{0, "\xfe\xed\xfa\xce", "is a Mach-O file, not an ELF file"},
	{0, "\xfe\xed\xfa\xcf", "is a Mach-O file, not an ELF file"},
	{0, "\xce\xfa\xed\xfe", "is a Mach-O file, not an ELF file"},
	{0, "\xcf\xfa\xed\xfe", "is a Mach-O file, not an ELF file"},
	{0, "\xca\xfe\xba\xbe", "is a Mach-O or Java class file, not an ELF file"},
	{0, "\x1f\x8b", "is a gzip file; unpack it"},
	{0, "\xfd7zXZ", "is an xz file; unpack it"},
	{0, "BZh", "is a bzip2 file; unpack it"},
	{0, "\x28\xb5\x2f\xfd", "is a zstd file; unpack it"},
	{0, "PK\x03\x04", "is a ZIP file; unpack it"},
	{0, "!<arch>\ndebian-binary", "is a Debian package; unpack it with dpkg-deb -R"},
	{0, "!<arch>\n", "is an archive; extract its members with ar x"},
	{0, "\xed\xab\xee\xdb", "is an RPM package; unpack it with rpm2cpio"},
	{257, "ustar", "is a tar archive or a container image; unpack it"},
}

// explain returns a more helpful error if the input is of an unsupported kind. If recursive is set, the verb
// accepts -r.
func explain(path string, err error, recursive bool) error {
	info, statErr := os.Stat(path)
	switch {
	case statErr != nil || errors.Is(err, context.Canceled):
		return err
	case info.IsDir() && recursive:
		return errors.New("is a directory; use -r")
	case info.IsDir():
		return errors.New("is a directory; use a file")
	case info.Mode()&fs.ModeNamedPipe != 0:
		return errors.New("is a pipe; use - to read standard input")
	case errors.Is(err, convert.ErrMayInfer):
		return fmt.Errorf("%w; %s", err, adviceOn(err))
	case !errors.Is(err, elffile.ErrNotELF) && !errors.Is(err, sframe.ErrNone):
		return err
	}
	f, _, openErr := outfile.OpenRegular(path)
	if openErr != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head) // small files are shorter than head
	if n == 0 {
		return errors.New("is empty")
	}
	for _, k := range fileKinds {
		if n > k.off && bytes.HasPrefix(head[k.off:n], []byte(k.magic)) {
			return errors.New(k.message)
		}
	}
	if store := (*files.StoreError)(nil); errors.As(err, &store) {
		return fmt.Errorf("%w; 'cfi2sframe detach FILE -o %s' adds one", err, store.Directory)
	}
	if bytes.HasPrefix(head[:n], []byte(elf.ELFMAG)) && errors.Is(err, sframe.ErrNone) &&
		!errors.Is(err, convert.ErrEmpty) {
		return fmt.Errorf("%w; 'cfi2sframe FILE -o OUT' adds one", err)
	}
	return err
}

// advice maps conversion errors to the flags that help.
var advice = []struct {
	err  error
	text string
}{
	{elfwrite.ErrExists, "--update or --force replaces it"},
	{elfwrite.ErrNoRoom, "'cfi2sframe detach' writes a separate file"},
	{convert.ErrAppended, "'cfi2sframe detach' writes a separate file, --force converts"},
	{convert.ErrHasSFrame, "use --force to add another"},
	{convert.ErrNotModule, "use --for linux-kernel or linux"},
	{convert.ErrReserved, "omit --into"},
	{convert.ErrMayInfer, "use --infer"},
	{convert.ErrNoSymbols, "use --into " + convert.KernelSymbols + ", or convert vmlinux.o"},
}

// adviceOn returns the advice for an error, or "".
func adviceOn(err error) string {
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return a.text
		}
	}
	return ""
}

// explainOutput returns a more helpful error if the output is a directory, or its directory is missing.
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
