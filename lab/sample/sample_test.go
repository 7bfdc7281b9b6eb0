package sample

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestQuick samples two programs for some seconds.
func TestQuick(t *testing.T) {
	if os.Getuid() != 0 {
		peer.Missing(t, "root is needed, for a mount namespace")
	}
	for _, name := range []string{"unshare", "gcc", "g++"} {
		peer.Look(t, name)
	}
	peer.File(t, "/usr/bin/python3")
	out, err := exec.Command("../../scripts/lab", "sample", "--quick").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"| python3 | V3 | 3000 | 0 | ", "| exceptions (C++) | V3 | 3000 | 0 | "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestParse reads output of a sampler, and output that is wrong.
func TestParse(t *testing.T) {
	r, err := parse(strings.NewReader(`samples 10
ns 12.5
end 3 9
tally differ 5 2 0x1f 0x2 0x3 /lib/a.so
tally behind 6 1 0x10 0 0x4 ` + `
1000-2000 r-xp 00000000 00:27 1234                    /bin/a
2000-3000 r--p 00000000 00:27 1234                    /bin/b
`))
	if err != nil {
		t.Fatal(err)
	}
	if r.n("samples") != 10 || r.n("ns") != 12.5 || r.n("end 3") != 9 || len(r.files) != 1 || r.files[0] != "/bin/a" {
		t.Errorf("got %+v", r)
	}
	want := []tally{{"differ", 5, 2, 0x1f, 2, 3, "/lib/a.so"}, {"behind", 6, 1, 0x10, 0, 4, ""}}
	if !slices.Equal(r.tallies, want) {
		t.Errorf("got %+v", r.tallies)
	}
	r.add(&result{counts: map[string]float64{"samples": 30, "ns": 4.5}})
	if r.n("samples") != 40 || r.n("ns") != 6.5 {
		t.Errorf("the sum is %+v", r)
	}
	for _, bad := range []string{"", "samples 0\n", "samples x\n", "samples 1\ntally differ x\n"} {
		if _, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
