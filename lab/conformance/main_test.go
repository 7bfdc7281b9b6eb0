package conformance

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/conformance/vector"
)

const top = "../.."

// load returns all vectors and known errors.
func load(t *testing.T) ([]vector.Vector, []Known) {
	t.Helper()
	vectors := must.Get(vector.Load(filepath.Join(top, "conformance/vectors")))(t)
	known := must.Get(loadKnown(filepath.Join(top, "conformance/known.json")))(t)
	return vectors, known
}

// testReader asks a reader about all vectors. It reports wrong answers that are not known errors, and known errors that
// no longer occur.
func testReader(t *testing.T, r *Reader) []Result {
	t.Helper()
	vectors, known := load(t)
	out := must.Get(askAll(r, vectors, known))(t)
	for _, res := range out {
		if res.Status == Wrong {
			t.Errorf("%s: %s: %v: %s", r.Hello.Reader, res.Vector.Name, res.Status, res.What)
		}
	}
	for _, p := range unusedPatterns(known, r.Hello.Reader, vectors) {
		t.Errorf("%s: the pattern of a known error matches no vector: %s", r.Hello.Reader, p)
	}
	return out
}

// TestOwn runs our own reader, which has no known errors.
func TestOwn(t *testing.T) {
	r := must.Get(StartReader("own", top, t.TempDir()))(t)
	for _, res := range testReader(t, r) {
		if res.Status != Right {
			t.Errorf("%s: %v", res.Vector.Name, res.Status)
		}
	}
}

// TestReaders runs all readers, and expects conformance/README.md to contain their results.
func TestReaders(t *testing.T) {
	doc := testfile.Read(t, filepath.Join(top, "conformance/README.md"))
	var names []string
	all := make([][]Result, len(readerNames))
	t.Run("each", func(t *testing.T) {
		for i, name := range readerNames {
			dir := t.TempDir()
			r, err := StartReader(name, top, dir)
			if err != nil {
				peer.Missing(t, err.Error())
			}
			names = append(names, r.Hello.Reader)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				all[i] = testReader(t, r)
			})
		}
	})
	if len(names) < len(readerNames) {
		return // skipped or failed
	}
	var table strings.Builder
	if writeTable(&table, names, all); !strings.Contains(string(doc), table.String()) {
		t.Errorf("conformance/README.md does not have this table:\n%s", &table)
	}
}

// TestGuide expects conformance/README.md to list each feature with its formats and number of vectors.
func TestGuide(t *testing.T) {
	vectors, _ := load(t)
	b := testfile.Read(t, filepath.Join(top, "conformance/README.md"))
	rows := make(map[string][]string)
	for _, line := range strings.Split(string(b), "\n") {
		if m := regexp.MustCompile("^\\| `([a-z-]+)` \\|").FindStringSubmatch(line); m != nil {
			for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
				rows[m[1]] = append(rows[m[1]], strings.TrimSpace(cell))
			}
		}
	}
	for _, feature := range features {
		n, formats := 0, []string{}
		for _, v := range vectors {
			if v.Feature == feature {
				n++
				if !slices.Contains(formats, v.Format) {
					formats = append(formats, v.Format)
				}
			}
		}
		slices.Sort(formats)
		want := []string{strings.Join(formats, ", "), strconv.Itoa(n)}
		if r := rows[feature]; n == 0 || len(r) < 4 || !slices.Equal(r[len(r)-2:], want) {
			t.Errorf("%s: %q; want the last cells %q", feature, r, want)
		}
	}
	for _, v := range vectors {
		if !slices.Contains(features, v.Feature) {
			t.Errorf("%s: no table has the feature %s", v.Name, v.Feature)
		}
	}
}
