package gopclntab

import "testing"

func TestMinor(t *testing.T) {
	for version, want := range map[string]int{
		"go1.26": 26, "go1.26.8": 26, "go1.9.1": 9, "go1.26.8 X:boringcrypto": 26, "go1.27-20260911-RC00 cl/1": 0,
		"go1.26rc1": 0, "devel go1.26-abc": 0, "go1.": 0, "go2.26.1": 0, "": 0, "go1.99999999999999999999": 0,
	} {
		if got := minorOf(version); got != want {
			t.Errorf("%q: %d; want %d", version, got, want)
		}
	}
}

// TestInjected looks up functions by name, and by the function IDs of several releases (internal/abi/symtab.go,
// cmd/internal/objabi/funcid.go).
func TestInjected(t *testing.T) {
	for _, tt := range []struct {
		minor int
		id    byte
		name  string
		want  bool
	}{
		{18, 3, "", true}, {18, 5, "", true}, {21, 18, "", true}, {21, 19, "", false}, // systemstack
		{22, 6, "", true}, {24, 19, "", true}, {24, 5, "", false}, {24, 20, "", false}, // corostart, systemstack
		{25, 20, "", true}, {27, 20, "", true}, {27, 19, "", false}, // runCleanups
		{27, 0, "runtime.sigpanic0", true}, {27, 0, "main.sigpanic", false},
		{0, 20, "", false}, {0, 20, "runtime.sigpanic", true}, {28, 20, "runtime.asyncPreempt", true},
	} {
		if got := (&Table{minor: tt.minor}).injected(tt.id, tt.name); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

func TestVarint(t *testing.T) {
	for code, want := range map[string]struct {
		v uint32
		n int
	}{"\x00": {0, 1}, "\xff\xff\xff\xff\x0f": {1<<32 - 1, 5}, "\x80\x80\x80\x80\x80\x00": {}, "\x80": {}, "": {}} {
		if v, n := varint([]byte(code)); v != want.v || n != want.n {
			t.Errorf("% x: %d of %d bytes; want %d of %d", code, v, n, want.v, want.n)
		}
	}
}
