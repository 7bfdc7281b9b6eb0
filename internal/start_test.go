package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
)

// unwanted lists packages that slow down the start of every program that links them, used or not, and what to use
// instead. Packages below a listed path are also unwanted.
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

// TestStart checks that the command links none of the unwanted packages.
func TestStart(t *testing.T) {
	b := must.Get(exec.Command("go", "list", "-deps", "../cmd/cfi2sframe").Output())(t)
	deps := strings.Fields(string(b))
	if !slices.Contains(deps, "github.com/spf13/pflag") {
		t.Fatalf("these are not the packages of the command: %v", deps)
	}
	for _, dep := range deps {
		for _, u := range unwanted {
			if dep == u.path || strings.HasPrefix(dep, u.path+"/") {
				t.Errorf("the command links %s; use %s", dep, u.instead)
			}
		}
	}
}

// TestInstructions limits the number of instructions that --version executes, if valgrind is installed. An empty Go
// program executes 0.3 million instructions.
func TestInstructions(t *testing.T) {
	long.Test(t)
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("valgrind is missing")
	}
	const most = 1_500_000
	program := filepath.Join(t.TempDir(), "cfi2sframe")
	build := exec.Command("go", "build", "-o", program, "../cmd/cfi2sframe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	must.Run(t, build)
	run := exec.Command(valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program,
		"--version")
	run.Env = append(os.Environ(), "GODEBUG=cpu.rdtscp=off") // not supported by valgrind
	out, err := run.CombinedOutput()
	counted := regexp.MustCompile(`I +refs: +([\d,]+)`).FindSubmatch(out)
	if err != nil || counted == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(string(counted[1]), ",", ""))
	if err != nil || n > most {
		t.Errorf("%d instructions, error %v; want at most %d", n, err, most)
	}
}
