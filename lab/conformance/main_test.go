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

// results asks a reader about all vectors. It fails for wrong answers that are not known, and for known ones that are
// right.
func results(t *testing.T, r *Reader) []Result {
	t.Helper()
	vectors, known := load(t)
	out := must.Get(askAll(r, vectors, known))(t)
	for _, res := range out {
		if res.Status == Wrong {
			t.Errorf("%s: %s: %v: %s", r.Hello.Reader, res.Vector.Name, res.Status, res.What)
		}
	}
	for _, p := range unused(known, r.Hello.Reader, vectors) {
		t.Errorf("%s: no vector has the name of a known error: %s", r.Hello.Reader, p)
	}
	return out
}

// TestOwn runs our own reader, which has no known errors.
func TestOwn(t *testing.T) {
	r := must.Get(StartReader("own", top, t.TempDir()))(t)
	for _, res := range results(t, r) {
		if res.Status != Right {
			t.Errorf("%s: %v", res.Vector.Name, res.Status)
		}
	}
}

// TestReaders runs the other readers, and expects their results in conformance/README.md.
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
				all[i] = results(t, r)
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

// TestJudge has answers that are each wrong in one way.
func TestJudge(t *testing.T) {
	row := func(offset int64) *vector.Row { return &vector.Row{CFA: &vector.Rule{Base: "sp", Offset: offset}} }
	vectors := []vector.Vector{{
		Name: "2-amd64/x", Feature: "cfa", Format: "2", ABI: "amd64", Section: []byte{1},
		Expect: vector.Expects{{From: 0x10, To: 0x20, Row: row(8)}, {From: 0x20, To: 0x21}},
	}, {
		Name: "2-amd64/y", Feature: "refuse-bounds", Format: "2", ABI: "amd64", Section: []byte{2},
		Refuse: &vector.Refuse{What: "y", PCs: []vector.Hex{1}},
	}}
	answers := func(rows ...*vector.Row) vector.Reply { return vector.Reply{Answers: rows} }
	right, refused := answers(row(8), row(8), row(8), nil, nil, nil), vector.Reply{Refused: "y"}
	for _, tt := range []struct {
		name  string
		x, y  vector.Reply
		known []Known
		want  [2]Status
	}{
		{"right", right, refused, nil, [2]Status{Right, Right}},
		{"no row at all", right, answers(nil), nil, [2]Status{Right, Right}},
		{"last pc", answers(row(8), row(8), row(9), nil, nil, nil), answers(row(8)), nil, [2]Status{Wrong, Wrong}},
		{"hole", answers(row(8), row(8), row(8), nil, nil, row(8)), vector.Reply{Ended: "x"}, nil,
			[2]Status{Wrong, Wrong}},
		{"too few", answers(row(8)), refused, nil, [2]Status{Wrong, Right}},
		{"refused", refused, refused, nil, [2]Status{Wrong, Right}},
		{"known", refused, refused, []Known{{ID: "k", Readers: []string{"r"}, Vectors: []string{"2-amd64/{x,y}"}}},
			[2]Status{Expected, Wrong}},
		{"another's", refused, refused, []Known{{ID: "k", Readers: []string{"s"}, Vectors: []string{"*/*"}}},
			[2]Status{Wrong, Right}},
	} {
		r := &Reader{
			Hello: vector.Hello{Reader: "r", Formats: []string{"2"}, ABIs: []string{"amd64"}},
			Ask:   func(q *vector.Question) (vector.Reply, error) { return []vector.Reply{tt.x, tt.y}[q.ID], nil },
		}
		got, err := askAll(r, vectors, tt.known)
		if err != nil || len(got) != 2 || got[0].Status != tt.want[0] || got[1].Status != tt.want[1] {
			t.Errorf("%s: %+v, error %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// TestAdapter runs a program that answers, one that exits, and one that prints nothing.
func TestAdapter(t *testing.T) {
	peer.Look(t, "sh")
	const hello = `echo '{"reader":"r","formats":["2"],"abis":["amd64"]}';`
	r := must.Get(startAdapter("sh", "-c", hello+
		` while read -r line; do case $line in *'"id":7,'*) echo '{"id":7,"answers":[null]}';;`+
		` *) exit 5;; esac; done`))(t)
	for range 2 {
		if reply, err := r.Ask(&vector.Question{ID: 7}); err != nil || len(reply.Answers) != 1 {
			t.Errorf("reply %+v, error %v", reply, err)
		}
		if _, err := r.Ask(&vector.Question{ID: 8}); err == nil || !strings.Contains(err.Error(), "exit status 5") {
			t.Errorf("error %v; want exit status 5", err)
		}
	}
	if _, err := startAdapter("sh", "-c", "echo nothing; exec cat"); err == nil || !strings.Contains(err.Error(),
		"does not name a reader") {
		t.Errorf("error %v", err)
	}
}
