package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// unwanted are packages that take time when a program starts which has them, whether it uses them or not, and
// what else would be used in place of them. What is below one is unwanted as well.
var unwanted = []struct{ path, instead string }{
	{"net/http", "nothing"},
	{"golang.org/x/net", "nothing"},
	{"crypto/x509", "nothing"},
	{"crypto/tls", "nothing"},
	{"github.com/santhosh-tekuri/jsonschema", "nothing: tests check schemas"},
	{"github.com/schollz/progressbar", "github.com/vbauerster/mpb, which has no HTTP server"},
	{"golang.org/x/arch", "the decoders of verify and gopclntab"},
	{"github.com/klauspost/compress", "debug/elf, which decompresses zstd without the tables of Snappy"},
}

// TestStart keeps out of the command what would make it start later.
func TestStart(t *testing.T) {
	b, err := exec.Command("go", "list", "-deps", "../cmd/cfi2sframe").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(b))
	if !slices.Contains(deps, "github.com/spf13/pflag") {
		t.Fatalf("these are not the packages of the command: %v", deps)
	}
	for _, dep := range deps {
		for _, u := range unwanted {
			if dep == u.path || strings.HasPrefix(dep, u.path+"/") {
				t.Errorf("the command has %s in it; use %s", dep, u.instead)
			}
		}
	}
}
