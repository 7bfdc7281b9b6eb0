package kit

import (
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/must"
)

// TestCompareRows compares a section with the CFI of its file, and with an empty CFI table. The tests of packages linux
// and survive cover wrong rows.
func TestCompareRows(t *testing.T) {
	none := must.Get(cfi.Parse(elf.EM_X86_64, binary.LittleEndian, cfi.Section{Source: cfi.DebugFrame}))(t)
	out := filepath.Join(t.TempDir(), "out")
	must.Do(t, WithProduct(func(program, _ string) error {
		return Run("", program, "-q", "../../testdata/bin/amd64/prologue", "-o", out)
	}))
	f, section := must.Two(linked.Load(out))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	rows, err := CompareRows(table, section, nil)
	if err != nil || rows.Functions != 4 || rows.Described != 107 || rows.Covered != 107 || rows.PCs < 30 {
		t.Errorf("its own CFI: %+v, error %v", rows, err)
	}
	if _, err := CompareRows(none, section, nil); err == nil || !strings.Contains(err.Error(), "there is no CFI") {
		t.Errorf("no CFI: error %v", err)
	}
	rows, err = CompareRows(none, section, func(uint64) bool { return true })
	if err != nil || rows.Stubs == 0 {
		t.Errorf("stubs without CFI: %+v, error %v", rows, err)
	}
}
