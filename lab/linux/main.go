// Package linux converts kernels and kernel modules with debug information, loads modules as the kernel's module loader
// does, and compares the rows with the CFI at every pc. Loading and comparing share only the
// readers of both formats with cfi2sframe.
package linux

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"

	"cfi2sframe/lab/kit"
)

// Compare converts a kernel or module to out, and compares the result's rows with its CFI. It returns the kind of file.
func Compare(program, path, out string) (kind string, rows kit.Rows, report kit.Report, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", rows, report, err
	}
	e, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return "", rows, report, err
	}
	kind, symbols, flags := e.Machine.String()+" modules", "", []string{"--for", "linux-module", "--share", "on"}
	if e.Type != elf.ET_REL {
		kind = e.Machine.String() + " vmlinux"
		if symbols, err = reserve(b, e); err != nil {
			return "", rows, report, err
		}
		flags = []string{"--for", "linux-kernel", "--share", "on", "--into", symbols}
		path = out + ".reserved"
		if err := os.WriteFile(path, b, 0o666); err != nil {
			return "", rows, report, err
		}
	}
	if report, err = kit.Convert(program, path, out, flags...); err != nil || report.Kept != "" {
		return kind, rows, report, err
	}
	if b, err = os.ReadFile(out); err != nil {
		return "", rows, report, err
	}
	l, err := load(b, symbols)
	if err != nil {
		return "", rows, report, err
	}
	if rows, err = l.compare(); err != nil {
		return "", rows, report, err
	}
	if rows.Covered != report.Covered || rows.Described != report.Described {
		return "", rows, report, fmt.Errorf("%d of %d bytes are covered; the report says %d of %d",
			rows.Covered, rows.Described, report.Covered, report.Described)
	}
	if symbols == "" {
		err = kit.Run("", program, "check", "-q", "--for", "linux-module", out)
	}
	return kind, rows, report, err
}

// reserve frees bytes of a linked kernel that are not needed to run it, and returns the symbols around them: it clears
// .BTF, and rounds the value of its start symbol up to a multiple of 8.
func reserve(b []byte, e *elf.File) (string, error) {
	const first, last = "__start_BTF", "__stop_BTF"
	btf, table := e.Section(".BTF"), e.SectionByType(elf.SHT_SYMTAB)
	symbols, err := e.Symbols()
	if btf == nil || table == nil || err != nil {
		return "", fmt.Errorf("the kernel lacks .BTF, which .sframe overwrites in this test, or symbols: %w", err)
	}
	clear(b[btf.Offset : btf.Offset+btf.Size])
	for i, s := range symbols { // the list symbols does not contain the table's first symbol
		if s.Name == first {
			const value = 8 // offset of st_value
			e.ByteOrder.PutUint64(b[table.Offset+uint64(i+1)*elf.Sym64Size+value:], (s.Value+7)&^7)
		}
	}
	return first + ":" + last, nil
}
