package translate

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
)

// TestMerge expects the same of a table in parts as of the whole, in every field.
func TestMerge(t *testing.T) {
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, path := range files {
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		info, err := r.Stat()
		if err != nil {
			t.Fatal(err)
		}
		f, err := elffile.New(r, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		table, err := cfi.Load(f, cfi.Auto, nil)
		if err != nil {
			t.Fatal(err)
		}
		stubs, err := plt.Find(f, table)
		if err != nil {
			t.Fatal(err)
		}
		result := func(t *testing.T, table *cfi.Table, v sframe.Version, last bool) *Result {
			t.Helper()
			opt := Options{Version: v, Moves: f.Moves}
			if last {
				opt.Stubs = stubs
			}
			res, err := Translate(table, opt, Discard())
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		v2, v3 := result(t, table, sframe.V2, true), result(t, table, sframe.V3, true)
		for _, want := range []*Result{v2, v3} {
			for _, n := range []int{1, 2, 3, 50} {
				var parts []*Result
				split := table.Split(n)
				for i, p := range split {
					parts = append(parts, result(t, p, map[*Result]sframe.Version{v2: sframe.V2, v3: sframe.V3}[want],
						i+1 == len(split)))
				}
				if got := Merge(parts); !reflect.DeepEqual(got, want) {
					t.Errorf("%s in %d parts: %+v, want %+v", path, n, got, want)
				}
			}
		}
	}
}

// TestListedTo says up to where all gaps are known.
func TestListedTo(t *testing.T) {
	gaps := []Gap{{Begin: 0x10, End: 0x14}, {Begin: 0x20, End: 0x28}}
	sums := func(a, b int) map[Reason]Sum {
		return map[Reason]Sum{DRAP: {Ranges: a}, SPRule: {Ranges: b}}
	}
	for _, tt := range []struct {
		res  Result
		want uint64
	}{
		{Result{}, math.MaxUint64},
		{Result{Gaps: gaps, Sums: sums(1, 1)}, math.MaxUint64},
		{Result{Gaps: gaps, Sums: sums(1, 2)}, 0x28},
	} {
		if got := tt.res.ListedTo(); got != tt.want {
			t.Errorf("%+v: %#x, want %#x", tt.res, got, tt.want)
		}
	}
}
