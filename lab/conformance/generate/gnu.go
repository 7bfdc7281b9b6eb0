package generate

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/conformance/vector"
)

// writers are GNU's assemblers and linkers, and their sources.
var writers = []struct{ suite, version, prefix, abi, sources string }{
	{"", "2.40", "", "amd64", "prologue remember alloca cold repeat"},
	{"trixie", "2.44", "", "amd64", "prologue remember alloca cold plt repeat undefra"},
	{"trixie", "2.44", "aarch64-linux-gnu-", "aarch64", "prologue bigframe"},
	{"sid", "2.47", "", "amd64",
		"prologue remember alloca bigframe cold plt restored repeat drap1 rareg racolumn fprules undefra"},
	{"sid", "2.47", "aarch64-linux-gnu-", "aarch64", "prologue bigframe expr fponly"},
	{"sid", "2.47", "s390x-linux-gnu-", "s390x", "prologue offsets stackclash plt"},
}

// assemble has GNU as and ld make all sections, and returns the contents of linkedFile.
func assemble(top string) ([]byte, error) {
	var all []Linked
	for _, w := range writers {
		dir, err := suite.TempDir(w.suite)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		for _, name := range strings.Fields(w.sources) {
			source := filepath.Join("testdata/asm", w.abi, name+".s")
			b, err := os.ReadFile(filepath.Join(top, source))
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(dir, "in.s"), b, 0o666); err != nil {
				return nil, err
			}
			// Warnings about CFI without an SFrame form are no errors.
			script := fmt.Sprintf("%[1]sas --gsframe -o in.o in.s 2>log && %[1]sld -shared -o out in.o 2>>log || "+
				"{ cat log; echo %[2]s; false; }", w.prefix, source)
			if err := suite.Script(w.suite, dir, script); err != nil {
				return nil, err
			}
			f, err := linked.Open(filepath.Join(dir, "out"))
			if err != nil {
				return nil, err
			}
			sections := make(map[string]*elffile.Section)
			data := make(map[string][]byte)
			for _, name := range []string{".sframe", ".eh_frame"} {
				if sections[name] = f.Section(name); sections[name] == nil {
					return nil, fmt.Errorf("%s: as and ld %s have made no %s", source, w.version, name)
				}
				if data[name], err = f.ReadSection(sections[name]); err != nil {
					return nil, err
				}
			}
			l := Linked{
				Writer: w.version, Source: source, ABI: w.abi, Machine: elf.Machine(f.Machine), Stubs: stubs(f),
				Address: vector.Hex(sections[".sframe"].Addr), Section: data[".sframe"],
				EHAddr: vector.Hex(sections[".eh_frame"].Addr), EHFrame: data[".eh_frame"],
			}
			all = append(all, l)
		}
	}
	return lines(all)
}
