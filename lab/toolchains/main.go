// Package toolchains compiles programs by compilers of several versions with the flags that change stack frames,
// converts the results, and checks them.
package toolchains

import (
	"bytes"
	"context"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("toolchains", "SOURCES...", 1, math.MaxInt)
	match := c.String("match", "", "only cases that this `REGEXP` matches")
	c.Run = func(sources []string) error {
		only, err := regexp.Compile(*match)
		if err != nil {
			return err
		}
		return run(sources, only)
	}
	return c
}

// compilers are those of the systems of scripts/peers, and of the machine, whose suite is "".
var compilers = []struct{ name, suite, command, abis string }{
	{"gcc-16", "sid", "gcc-16", "amd64 aarch64 s390x"},
	{"clang-23", "sid", "clang-23", "amd64 aarch64 s390x"},
	{"gcc-14", "trixie", "gcc", "amd64"},
	{"gcc-12", "", "gcc", "amd64 aarch64 s390x"},
	{"clang-14", "", "clang-14", "amd64 aarch64 s390x"},
}

//go:embed cases.txt
var flagCases string

// triples are the machines by their names in compilers.
var triples = map[string]string{"amd64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "s390x": "s390x-linux-gnu"}

// A testCase says how a program is compiled.
type testCase struct {
	compiler, abi string
	how           string // run, link or object: see cases.txt
	flags         string
	suite         string
	driver        string // the compiler's command
}

func (c *testCase) String() string {
	return strings.Join([]string{c.compiler, c.abi, c.how, c.flags}, " ")
}

// cases returns all levels of optimization by all compilers, and the cases of the file.
func cases() (all []testCase) {
	lines := strings.Split(strings.TrimSpace(flagCases), "\n")
	for _, c := range compilers {
		for _, abi := range strings.Fields(c.abis) {
			for _, level := range []string{"-O2", "-O0", "-O3"} {
				lines = append(lines, c.name+" "+abi+" run "+level)
			}
		}
	}
	for _, line := range lines {
		words := strings.SplitN(line, " ", 4)
		for _, c := range compilers {
			if c.name != words[0] {
				continue
			}
			t := testCase{words[0], words[1], words[2], words[3], c.suite, c.command}
			switch {
			case strings.HasPrefix(c.command, "clang"):
				// Unwind tables are not clang's default for C on s390x.
				t.driver += " --target=" + triples[t.abi] + " -fasynchronous-unwind-tables"
			case t.abi != "amd64":
				t.driver = triples[t.abi] + "-" + t.driver
			}
			all = append(all, t)
		}
	}
	return all
}

// run prints a line of a table for each case and each directory of sources.
func run(sources []string, only *regexp.Regexp) error {
	columns := []string{"program", "compiler", "ABI", "flags", ">bytes of code"}
	for _, v := range sframe.Versions() {
		columns = append(columns, fmt.Sprintf(">V%d", v))
	}
	table := kit.NewTable(os.Stdout, columns...)
	var errs []error
	for _, dir := range sources {
		for _, c := range cases() {
			if !only.MatchString(c.String()) {
				continue
			}
			name := filepath.Base(dir)
			row := []any{name, c.compiler, c.abi, "`" + c.flags + "`"}
			shares, err := c.try(dir)
			table.Row(append(row, shares...)...)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %v: %w", name, &c, err))
			}
		}
	}
	return errors.Join(errs...)
}

// script compiles all C files of a directory. The C library of aarch64 lacks a header for the other byte order.
const script = `
mkdir -p gnu; : >gnu/stubs-lp64_be.h
for f in *.c; do %[1]s %[2]s -I. -c $f -o ${f%%.c}.o; done
`

// try compiles a program, converts it to all versions, and returns the size of its code and the covered shares.
func (c *testCase) try(sources string) ([]any, error) {
	dir, err := suite.TempDir(c.suite)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(sources)); err != nil {
		return nil, err
	}
	steps, object := fmt.Sprintf(script, c.driver, c.flags), c.how == "object"
	if !object {
		steps += fmt.Sprintf("%s %s *.o -lm -ldl -lpthread -o prog\nrm *.o\n", c.driver, c.flags)
	}
	if err := suite.Script(c.suite, dir, steps); err != nil {
		return nil, err
	}
	made, err := filepath.Glob(dir + "/*.o")
	if err != nil {
		return nil, err
	}
	if !object {
		made = []string{dir + "/prog"}
	}
	var before []byte
	if c.how == "run" {
		if before, err = c.output(made[0]); err != nil {
			return nil, fmt.Errorf("before it is converted: %w", err)
		}
	}
	size, shares := uint64(0), []any{}
	for _, v := range sframe.Versions() {
		var described, covered uint64
		for _, path := range made {
			out := path + ".converted"
			r, err := convertTo(v, path, out)
			if err != nil {
				return nil, fmt.Errorf("version %d: %w", v, err)
			}
			if r == nil {
				continue
			}
			described, covered = described+r.Described, covered+r.Covered
			if c.how != "run" {
				continue
			}
			if after, err := c.output(out); err != nil || !bytes.Equal(before, after) {
				return nil, fmt.Errorf("version %d: the converted program prints %.200q, error %v; the original %.200q",
					v, after, err, before)
			}
		}
		share := "-"
		if described > 0 {
			share = report.Share(covered, described)
		}
		size, shares = max(size, described), append(shares, share)
	}
	return append([]any{report.Digits(size)}, shares...), nil
}

// output runs a program, and returns what it prints. Those of other machines run in the emulators of sid.
func (c *testCase) output(program string) ([]byte, error) {
	name, command := c.suite, "./prog"
	if c.abi != "amd64" {
		name, command = "sid", "qemu-"+c.abi+" -L /usr/"+triples[c.abi]+" ./prog"
	}
	dir, err := suite.TempDir(name)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(dir+"/prog", b, 0o777)
	}
	if err == nil {
		err = suite.Script(name, dir, command+" >out")
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(dir + "/out")
}

// convertTo converts a file to a version, and compares the result with the file and with its CFI. It returns nil if the
// version does not know the machine, or has no objects.
func convertTo(v sframe.Version, in, out string) (*convert.Facts, error) {
	before, err := linked.Open(in)
	if err != nil {
		return nil, err
	}
	_, abi, err := arch.Find(elf.Machine(before.Machine), before.Order)
	if err != nil {
		return nil, err
	}
	codec, err := sframe.NewCodec(v, abi)
	if err != nil || before.IsObject() && !codec.Layout().Objects {
		return nil, nil
	}
	ctx, malformed := context.Background(), 0
	opt := files.Options{NoSync: true, Options: convert.Options{Version: v, Force: true}}
	opt.Report = func(d *convert.Details) error {
		malformed = d.Table.NumErrors
		return nil
	}
	res, err := files.Convert(ctx, in, out, opt)
	if err != nil {
		return nil, err
	}
	if len(res.Facts) != 1 || !res.Facts[0].Verified || malformed > 0 {
		return nil, fmt.Errorf("%d malformed records; facts %+v", malformed, res.Facts)
	}
	r := &res.Facts[0]
	checked, err := files.Check(ctx, out, convert.Options{})
	if err != nil || len(checked.Mismatches) > 0 || checked.Covered != r.Covered {
		return nil, fmt.Errorf("check: error %v, report %+v", err, checked)
	}
	if _, err := files.Convert(ctx, out, out+".again", opt); err != nil {
		return nil, fmt.Errorf("a second time: %w", err)
	}
	first, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	if second, err := os.ReadFile(out + ".again"); err != nil || !bytes.Equal(first, second) {
		return nil, fmt.Errorf("a second conversion changes the file, error %v", err)
	}
	after, err := linked.Open(out)
	if err != nil {
		return nil, err
	}
	if err := image.Compare(before, after); err != nil || before.IsObject() { // whose start addresses are relocations
		return r, err
	}
	table, err := cfi.Load(after, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	_, section, err := linked.Load(out)
	if err == nil {
		_, err = readback.Table(table, section)
	}
	return r, err
}
