package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// A preset is what the reader of that name wants.
type preset struct {
	name string
	convert.Format
	share bool // it reads shared FRE lists in either byte order
}

// presets are all that --for knows by name. README.md has for each format who reads it, and why.
var presets = []preset{
	// glibc 2.42 and later, built with --enable-sframe: V2 only. It looks for the outermost frame where there is no
	// row, and gives up at a row without words.
	{"glibc", convert.Format{Version: sframe.V2}, true},
	// The series for deferred unwinding takes V3 only, sorted, with start addresses from their own fields.
	{"linux", convert.Format{Version: sframe.V3}, true},
	// The only version that 2.40 knows.
	{"binutils-2.40", convert.Format{Version: sframe.V1}, false},
	// "decode failure" with flag 0x4; rows without words are misread as FP-1.
	{"binutils-2.41", convert.Format{Version: sframe.V2}, false},
	{"binutils-2.42", convert.Format{Version: sframe.V2}, false},
	{"binutils-2.43", convert.Format{Version: sframe.V2}, false},
	{"binutils-2.44", convert.Format{Version: sframe.V2}, false},
	// Errata 1 is what its assembler writes, and what its linker merges. Errata 2 came after it.
	{"binutils-2.45", convert.Format{Version: sframe.V2, PCRel: true}, false},
	// The linker merges V3 only, and libsframe finds wrong rows in V2 without flag 0x4.
	{"binutils-2.46", convert.Format{Version: sframe.V3}, false},
	{"binutils-2.47", convert.Format{Version: sframe.V3}, false},
	// DataDog's: flag 0x4 is refused.
	{"java-profiler", convert.Format{Version: sframe.V2}, false},
}

// presetNames lists them, releases of binutils by the first and the last.
func presetNames() string {
	var names []string
	for i, p := range presets {
		kind, _, release := strings.Cut(p.name, "-2.")
		first := i == 0 || !strings.HasPrefix(presets[i-1].name, kind+"-2.")
		switch last := i+1 == len(presets) || !strings.HasPrefix(presets[i+1].name, kind+"-2."); {
		case !release || first:
			names = append(names, p.name)
		case last:
			names[len(names)-1] += " to " + p.name
		}
	}
	return strings.Join(names, ", ")
}

// findPreset returns the preset that is given with --for: one of the table, or what a file has. What is
// no preset's name is a file if there is one, or if it has a slash.
func findPreset(given string) (preset, error) {
	for _, p := range presets {
		if p.name == given {
			return p, nil
		}
	}
	if _, err := os.Stat(given); err != nil && !strings.Contains(given, "/") {
		return preset{}, fmt.Errorf("--for %s: %s or a file was expected", shown(given), presetNames())
	}
	f, err := formatOf(given)
	if errors.Is(err, sframe.ErrNone) {
		err = withoutSFrame(given)
	}
	if err != nil {
		return preset{}, fmt.Errorf("--for %s: %w", given, err)
	}
	return preset{given, f, false}, nil
}

// formatOf returns the format of the .sframe that a file has, or sframe.ErrNone.
func formatOf(path string) (convert.Format, error) {
	in, err := files.Open(context.Background(), path) // which is no pipe, and is not waited for
	if err != nil {
		return convert.Format{}, err
	}
	defer in.Close()
	f, err := convert.OpenELF(in.File, in.Info.Size())
	if err != nil {
		return convert.Format{}, err
	}
	s, err := convert.ReadSection(f)
	if failed := f.ReadError(); failed != nil {
		return convert.Format{}, outfile.Plain(failed)
	}
	if err != nil {
		return convert.Format{}, err
	}
	return convert.FormatOf(s)
}

// apply sets the flags that a preset stands for. One that is given says the same, or it is an error.
func (p *preset) apply(flags *pflag.FlagSet) error {
	l, _ := p.Version.Layout()
	for _, f := range []struct {
		name, value string
		set         bool // by a flag: V3 always has it
	}{
		{"format", strconv.Itoa(int(p.Version)), true},
		{"pcrel", strconv.FormatBool(p.PCRel || l.PCRel), !l.PCRel},
		{"outermost", strconv.FormatBool(p.Outermost || l.Outermost), !l.Outermost},
	} {
		flag := flags.Lookup(f.name)
		if got := flag.Value.String(); flag.Changed && got != f.value {
			return fmt.Errorf("--for %s and --%s=%s exclude each other: that reader wants --%s=%s", p.name, f.name, got, f.name, f.value)
		}
		if !f.set {
			continue
		}
		if err := flag.Value.Set(f.value); err != nil {
			return err
		}
	}
	if share := flags.Lookup("share"); p.share && !share.Changed {
		return share.Value.Set(convert.ShareOn.String())
	}
	return nil
}

// release is what libc.so.6 and ld.so of glibc say of themselves.
const release = `(?:GNU C Library|ld\.so) \([^)]*\) [a-z]+ release version ([0-9]+)\.([0-9]+)`

// Of a file that may be glibc's, so much is looked at.
const maxRelease = 16 << 20

// The first release of glibc that can be built to read .sframe.
const glibcMajor, glibcMinor = 2, 42

// withoutSFrame says why a file without .sframe does not tell what is to be written. glibc has one if it was built to
// read those of others: --enable-sframe does both.
func withoutSFrame(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRelease))
	if err != nil {
		return err
	}
	m := regexp.MustCompile(release).FindSubmatch(b)
	if m == nil {
		return fmt.Errorf("it has no .sframe, which would tell the format; a file that has one was expected, or %s", presetNames())
	}
	major, _ := strconv.Atoi(string(m[1])) // which are digits
	minor, _ := strconv.Atoi(string(m[2]))
	if major < glibcMajor || major == glibcMajor && minor < glibcMinor {
		return fmt.Errorf("this is glibc %d.%d, which does not read .sframe; %d.%d and later do if they are built with --enable-sframe, and --for glibc is for these",
			major, minor, glibcMajor, glibcMinor)
	}
	return fmt.Errorf("this is glibc %d.%d without .sframe, so it was not built with --enable-sframe and does not read any; --for glibc is for one that was", major, minor)
}
