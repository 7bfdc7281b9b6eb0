package readers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/sframe"
)

// TestExplain has causes found in files whose frames are known, and none where there is no cause.
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"prologue", "drap1", "undefra", "padding"} {
		s, err := convertFile(fixtures+"amd64/"+name, dir, convert.Options{Version: sframe.V2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := files.Convert(t.Context(), s.path, filepath.Join(dir, name), files.Options{Options: s.opt}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		ex := &explainer{folders: []string{dir}, files: make(map[string]*explained)}
		at := func(offset uint64) place { return place{name, offset} }
		fn := s.table.At(0)
		inside := at(fn.Begin + 1)
		if name == "padding" {
			// The start of a function is where nothing has called: there is no CFI before it.
			starts, end := 0, uint64(0)
			for fn := range s.table.Functions() {
				if _, ok, _ := s.section.Lookup(fn.Begin - 1); ok && end < fn.Begin {
					starts++
					if why, err := ex.explain(pair{nil, []place{inside, at(fn.Begin)}}); err != nil || why != noCFI {
						t.Errorf("start of a function at %#x: %q, error %v; %q was expected", fn.Begin, why, err, noCFI)
					}
				}
				end = fn.End
			}
			if starts == 0 {
				t.Error("no function begins after padding")
			}
			continue
		}
		for i := range s.gaps {
			g := &s.gaps[i]
			want := noForm
			if row, ok := s.table.Lookup(g.Begin); ok && g.Reason == "outermost" && row.Rules != nil {
				want = ""
			}
			chain := []place{at(0), at(g.Begin + 1)}
			if why, err := ex.explain(pair{nil, chain}); err != nil || why != want {
				t.Errorf("%s, gap at %#x (%s): %q, error %v; %q was expected", name, g.Begin, g.Reason, why, err, want)
			}
			// A chain that is wrong is not excused by code that the section leaves out.
			if why, err := ex.explain(pair{[]place{at(0), at(1), at(2)}, chain}); err != nil || why != "" {
				t.Errorf("%s, gap at %#x: %q, error %v; no cause was expected of a chain that is wrong", name, g.Begin, why, err)
			}
		}
		if name != "prologue" {
			if len(s.gaps) == 0 {
				t.Errorf("%s has no gaps", name)
			}
			continue
		}
		var second uint64 // where the second row of a function begins
		for fn := range s.table.Functions() {
			if rows := slices.Collect(fn.Rows()); len(rows) > 1 {
				second = rows[1].Begin
			}
		}
		for _, tt := range []struct {
			what  string
			chain []place
			want  cause
		}{
			{"a frame with a row", []place{inside, inside, inside}, ""},
			{"no file", []place{inside, {"?", 1}}, noObject},
			{"no CFI", []place{inside, at(0x10)}, noCFI},
			{"a return address at the start of a row", []place{inside, at(second)}, afterCall},
		} {
			if why, err := ex.explain(pair{nil, tt.chain}); err != nil || why != tt.want {
				t.Errorf("%s: %q, error %v; %q was expected", tt.what, why, err, tt.want)
			}
		}
	}
}
