package mutants

import (
	"path"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestArguments expects all arguments to match mutants of cfi2sframe.
func TestArguments(t *testing.T) {
	t.Chdir("../..")
	why := must.Get(arguments(argumentText))(t)
	packages := make(map[string]bool)
	for key := range why {
		file, _, _ := strings.Cut(key, " ")
		packages[path.Dir(file)] = true
	}
	for pkg := range packages {
		all := must.Get(findAll(pkg))(t)
		if err := checkArguments(pkg, all, why); err != nil {
			t.Error(err)
		}
	}
}
