package flags

import (
	"fmt"
	"io"
	"testing"

	"github.com/spf13/pflag"
)

// values are what the flags of the tests are about.
type values struct {
	quiet, verbose, force bool
	jobs, format          int
	percent               float64
	output, share         string
	args                  []string
}

func (v *values) String() string {
	return fmt.Sprintf("%v %v %v %d %d %v %q %q %q", v.quiet, v.verbose, v.force, v.jobs, v.format, v.percent, v.output, v.share, v.args)
}

func initial() *values { return &values{format: 2, share: "auto"} }

func ours(v *values) *Set {
	s := &Set{}
	s.Int(&v.format, "", "format", "version: 1, 2 or 3")
	s.String(&v.output, "o", "output", "write to `FILE`; - is standard output")
	s.String(&v.share, "", "share", "how to share")
	s.Bool(&v.force, "", "force", "replace what is there")
	s.Float(&v.percent, "p", "percent", "no less than this")
	s.Bool(&v.quiet, "q", "quiet", "no report")
	s.Bool(&v.verbose, "v", "verbose", "a long report")
	s.Int(&v.jobs, "j", "jobs", "threads")
	return s
}

func theirs(v *values) *pflag.FlagSet {
	s := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s.SetOutput(io.Discard)
	s.SortFlags = false
	s.IntVar(&v.format, "format", v.format, "version: 1, 2 or 3")
	s.StringVarP(&v.output, "output", "o", v.output, "write to `FILE`; - is standard output")
	s.StringVar(&v.share, "share", v.share, "how to share")
	s.BoolVar(&v.force, "force", v.force, "replace what is there")
	s.Float64VarP(&v.percent, "percent", "p", v.percent, "no less than this")
	s.BoolVarP(&v.quiet, "quiet", "q", v.quiet, "no report")
	s.BoolVarP(&v.verbose, "verbose", "v", v.verbose, "a long report")
	s.IntVarP(&v.jobs, "jobs", "j", v.jobs, "threads")
	return s
}

// TestParse reads the command lines that can be made of these words, and expects of each what pflag makes of it.
func TestParse(t *testing.T) {
	words := []string{
		"file", "-", "--", "", "-q", "-qv", "-vq", "-x", "-qx", "-qé", "-j", "-j4", "-j=4", "-j=", "-jx", "-qj3", "-jq", "-o", "-oq", "-o=out", "-qo",
		"-q=false", "-q=", "-q=maybe", "--quiet", "--quiet=false", "--quiet=maybe", "--quiet=", "--output", "--output=out", "--output=", "--out=a=b",
		"--output=a=b", "--format", "--format=3", "--format=0x10", "--format=two", "--format=99999999999999999999", "--percent", "--percent=1e1",
		"-p5.5", "--percent=NaN", "--percent=x", "--share", "--force", "--=x", "---x", "--x", "--x=y", "3", "-3",
	}
	errs := 0
	check := func(args ...string) {
		got, want := initial(), initial()
		s, p := ours(got), theirs(want)
		gotErr, wantErr := s.Parse(args), p.Parse(args)
		got.args, want.args = s.Args(), p.Args()
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Errorf("%q: error %v; %v was expected", args, gotErr, wantErr)
		} else if gotErr == nil && got.String() != want.String() {
			t.Errorf("%q: %v; %v was expected", args, got, want)
		}
		if gotErr != nil {
			errs++
		}
	}
	check()
	for _, a := range words {
		check(a)
		for _, b := range words {
			check(a, b)
			for _, c := range words {
				check(a, b, c)
			}
		}
	}
	if n := len(words); errs == 0 || errs == 1+n+n*n+n*n*n {
		t.Errorf("%d command lines have errors", errs)
	}
}

func TestUsage(t *testing.T) {
	v := initial()
	if got, want := ours(v).Usage(), theirs(v).FlagUsages(); got != want {
		t.Errorf("\n%swas printed;\n%swas expected", got, want)
	}
}
