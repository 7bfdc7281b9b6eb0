package step

import (
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// TestRemote is TestLies for another machine, under QEMU.
func TestRemote(t *testing.T) {
	prog := build(t, "aarch64-linux-gnu-gcc", "-nostdlib", "-static", "testdata/lies_aarch64.s")
	opt := Options{Made: []sframe.Version{sframe.V2, sframe.V3}}
	r, status, err := Remote(t.Context(), []string{peer.Look(t, "qemu-aarch64-static"), prog}, opt)
	if err != nil || status != 0 {
		t.Fatalf("exit status %d, %v", status, err)
	}
	// The CFI is wrong after the call, which overwrites x30, until the correct return address is loaded.
	want := []string{"CFI liar +8..+12 RA: CFA sp+16, RA x30; the return address is elsewhere; 2"}
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	// 6 in _start, 5 in honest, 2 in each of two calls to leaf, 5 in liar.
	right := r.Sides[0].Right
	if r.Steps != 20 || r.Outermost != 6 || right != 12 || r.Calls != 4 || r.Returns != 4 || r.Machine != "aarch64" {
		t.Errorf("%d steps, %d outermost, %d right, %d calls, %d returns on %s",
			r.Steps, r.Outermost, right, r.Calls, r.Returns, r.Machine)
	}
	for _, s := range r.Sides[sframe.V2:] {
		if s.Wrong != 0 || s.Right+s.Repeats+s.Gaps != 14 {
			t.Errorf("%+v", s)
		}
	}
}
