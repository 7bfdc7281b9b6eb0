package generate

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/sframe"
)

// FromFile converts a file to a format, and returns a vector of the result with answers from its CFI. It has no answers
// for PLTs and other PC-mask functions, for what is beside them, and in V2 for functions 2 GiB away.
func FromFile(path, format string, opt convert.Options) (*vector.Vector, error) {
	opt.Force = true
	file, err := converted(path, opt)
	if err != nil {
		return nil, err
	}
	elfMachines := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64, "aarch64_be": elf.EM_AARCH64, "s390x": elf.EM_S390,
	}
	machines := []machine{amd64, aarch64, aarch64BE, s390x}
	i := slices.IndexFunc(machines, func(m machine) bool {
		return elfMachines[m.name] == elf.Machine(file.Machine) && m.order == file.Order
	})
	if i < 0 {
		return nil, fmt.Errorf("%s: unknown machine", path)
	}
	f := form{format, machines[i]}
	v, err := f.vector("programs", filepath.Base(path), "a converted file", path, file)
	if err != nil {
		return nil, err
	}
	table, err := cfi.Load(file, opt.Source, nil)
	if err != nil {
		return nil, err
	}
	found, err := plt.Find(file, table)
	if err != nil {
		return nil, err
	}
	// Tests of package padding check that this is padding. Without knowing the references to code, cfi2sframe describes
	// none.
	padded := make(map[uint64]uint64)
	if code, err := elfwrite.CodeOf(file); err == nil && !opt.NoPadding {
		for i, n := range padding.Find(file, table, found, code.Referred, 1) {
			padded[table.At(i).End] = uint64(n)
		}
	}
	excluded := stubs(file)
	for _, s := range found {
		excluded = append(excluded, span{vector.Hex(s.Begin), vector.Hex(s.End)})
	}
	section, err := sframe.Decode(v.Section, uint64(v.Address))
	if err != nil {
		return nil, err
	}
	for _, d := range section.FDEs() {
		if d.PCMask {
			excluded = append(excluded, span{vector.Hex(d.Start), vector.Hex(d.End())})
		}
	}
	for i := range excluded {
		excluded[i].Begin--
		excluded[i].End++
	}
	if v.Expect, err = f.answers(table, excluded, padded); err != nil {
		return nil, err
	}
	v.Expect = slices.DeleteFunc(v.Expect, func(e vector.Expect) bool {
		distance := int64(e.From - v.Address)
		far := f.version() < 3 && distance != int64(int32(distance))
		return far || overlaps(excluded, uint64(e.From), uint64(e.To))
	})
	return v, nil
}
