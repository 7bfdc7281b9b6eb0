package kit

import (
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/testfile"
)

// TestReadCounts reads output of a library, and output that is wrong.
func TestReadCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	testfile.Write(t, path, `samples 10
ns 12.5
end 3 9
tally differ 5 2 0x1f 0x2 0x3 /lib/a.so
tally behind 6 1 0x10 0 0x4 `+`
1000-2000 r-xp 00000000 00:27 1234                    /bin/a
2000-3000 r--p 00000000 00:27 1234                    /bin/b
`)
	r, err := ReadCounts(path)
	if err != nil {
		t.Fatal(err)
	}
	n := r.N
	if n["samples"] != 10 || n["ns"] != 12.5 || n["end 3"] != 9 || n["tally differ"] != 2 ||
		!slices.Equal(r.Files, []string{"/bin/a"}) {
		t.Errorf("got %+v", r)
	}
	want := []Tally{{"differ", 5, 2, 0x1f, 2, 3, "/lib/a.so"}, {"behind", 6, 1, 0x10, 0, 4, ""}}
	if !slices.Equal(r.Tallies, want) {
		t.Errorf("got %+v", r.Tallies)
	}
	if got := r.Explain("/bin/a", []string{6: "no section"}); !slices.Equal(got, []string{
		"2: differ after a.so+0x1f: ", "1: behind after a+0x10: no section"}) {
		t.Errorf("explained as %q", got)
	}
	r.Add(&Counts{N: map[string]float64{"ns": 4.5, "samples": 30}})
	if n["samples"] != 40 || n["ns"] != 6.5 {
		t.Errorf("the sum is %+v", r)
	}
	for _, bad := range []string{"", "samples x\n", "samples 1\ntally differ x\n"} {
		testfile.Write(t, path, bad)
		if _, err := ReadCounts(path); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := ReadCounts(path + ".none"); err == nil {
		t.Error("no output: no error")
	}
}
