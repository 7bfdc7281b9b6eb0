package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cfi2sframe/lab/conformance/vector"
)

// A Status is the result of asking about a vector.
type Status uint8

const (
	Right    Status = iota
	Wrong           // wrong answer, crash, or outdated list of known errors
	Expected        // wrong, and in the list of known errors
	Other           // refused, and the reader does not claim to support the format or ABI
)

func (s Status) String() string { return [...]string{"right", "wrong", "known error", "other"}[s] }

// A Result is the status of a vector, and the reason for it.
type Result struct {
	Vector *vector.Vector
	Status Status
	What   string // what is wrong
}

// A Known is a known error in a reader, listed until it is fixed.
type Known struct {
	ID      string   `json:"id"`
	Readers []string `json:"readers"`
	What    string   `json:"what"`
	Vectors []string `json:"vectors"` // patterns: * matches characters other than /, {a,b} matches a or b
	// Sometimes marks an error that depends on memory outside the section: the answer may be right.
	Sometimes bool `json:"sometimes,omitempty"`
}

// loadKnown reads a list of known errors.
func loadKnown(file string) ([]Known, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []Known
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

var patternSyntax = strings.NewReplacer("*", "[^/]*", "{", "(", "}", ")", ",", "|")

// compile returns the regular expression for a pattern of names.
func compile(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^(" + patternSyntax.Replace(pattern) + ")$")
}

// unusedPatterns returns the patterns of a reader's known errors that match no vector.
func unusedPatterns(known []Known, reader string, vectors []vector.Vector) []string {
	var out []string
	for _, k := range known {
		if !slices.Contains(k.Readers, reader) {
			continue
		}
		for _, p := range k.Vectors {
			name := compile(p)
			if !slices.ContainsFunc(vectors, func(v vector.Vector) bool { return name.MatchString(v.Name) }) {
				out = append(out, k.ID+": "+p)
			}
		}
	}
	return out
}

// A Reader answers questions.
type Reader struct {
	Hello vector.Hello
	Ask   func(*vector.Question) (vector.Reply, error)
}

// askAll asks a reader about all vectors.
func askAll(r *Reader, vectors []vector.Vector, known []Known) ([]Result, error) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "section")
	knownOf := errorsOf(known, r.Hello.Reader)
	var out []Result
	for i := range vectors {
		v := &vectors[i]
		claimed := slices.Contains(r.Hello.Formats, v.Format) && slices.Contains(r.Hello.ABIs, v.ABI)
		if !claimed && (v.Feature != "cfa" || v.Format == "2e2") {
			continue // a few vectors suffice for refusals; a section does not say whether it follows errata 2
		}
		if err := os.WriteFile(file, v.Section, 0o666); err != nil {
			return nil, err
		}
		q := &vector.Question{ID: i, ABI: v.ABI, Address: v.Address, PCs: v.PCs(), File: file, Section: v.Section}
		reply, err := r.Ask(q)
		what := ""
		switch {
		case err != nil:
			what = err.Error()
		case reply.Ended != "":
			what = "ended by a signal: " + reply.Ended
		case claimed:
			what = Judge(v, q, &reply, r.Hello.Cannot)
		default:
			what = judgeUnclaimed(v, q, &reply, r.Hello.Cannot)
		}
		out = append(out, result(v, what, claimed, knownOf(v.Name)))
	}
	return out, nil
}

// errorsOf returns a function from a vector to the reader's known error for it, or to nil if there is none.
func errorsOf(known []Known, reader string) func(vector string) *Known {
	known = slices.DeleteFunc(slices.Clone(known), func(k Known) bool { return !slices.Contains(k.Readers, reader) })
	var names []*regexp.Regexp
	for _, k := range known {
		names = append(names, compile(strings.Join(k.Vectors, "|")))
	}
	return func(vector string) *Known {
		i := slices.IndexFunc(names, func(n *regexp.Regexp) bool { return n.MatchString(vector) })
		if i < 0 {
			return nil
		}
		return &known[i]
	}
}

// result returns the result for a vector: what is wrong with the answer, whether the reader claims to support the
// format, and the known error.
func result(v *vector.Vector, what string, claimed bool, known *Known) Result {
	switch {
	case known != nil && (what != "" || known.Sometimes):
		return Result{v, Expected, what}
	case known != nil:
		return Result{v, Wrong, "right, but listed in known.json as " + known.ID + "; remove it there"}
	case what != "":
		return Result{v, Wrong, what}
	case !claimed:
		return Result{v, Other, ""}
	}
	return Result{v, Right, ""}
}

// Judge returns what is wrong with a reply, or "".
func Judge(v *vector.Vector, q *vector.Question, r *vector.Reply, cannot []string) string {
	if r.Refused != "" {
		if v.Refuse != nil {
			return ""
		}
		return "refused: " + r.Refused
	}
	if len(r.Answers) != len(q.PCs) {
		return fmt.Sprintf("%d answers to %d questions", len(r.Answers), len(q.PCs))
	}
	if v.Refuse != nil {
		for i, a := range r.Answers {
			if a != nil {
				return fmt.Sprintf("at %#x: %v; the section must be refused: %s", uint64(q.PCs[i]), a, v.Refuse.What)
			}
		}
		return ""
	}
	for i, a := range r.Answers {
		want := v.Expect[i/3].Row
		if !vector.Same(mask(a, cannot), mask(want, cannot)) {
			return fmt.Sprintf("at %#x: %v, want %v", uint64(q.PCs[i]), a, want)
		}
	}
	return ""
}

// judgeUnclaimed is like Judge for vectors that the reader does not claim to support: it may also refuse the
// section, or return no rows.
func judgeUnclaimed(v *vector.Vector, q *vector.Question, r *vector.Reply, cannot []string) string {
	if r.Refused != "" {
		return ""
	}
	if !slices.ContainsFunc(r.Answers, func(a *vector.Row) bool { return a != nil }) {
		return "" // no answer has a row
	}
	return Judge(v, q, r, cannot)
}

// mask returns an answer without the properties that the reader cannot express.
func mask(r *vector.Row, cannot []string) *vector.Row {
	if r == nil || len(cannot) == 0 {
		return r
	}
	c := *r
	for _, word := range cannot {
		switch word {
		case "signed":
			c.Signed = ""
		case "key":
			if c.Signed != "" {
				c.Signed = "A"
			}
		case "signal":
			c.Signal = false
		}
	}
	return &c
}

// An adapter is a command line whose program answers questions about sections.
type adapter []string

// startAdapter returns the reader of an adapter. The adapter runs once per question, because it may crash.
func startAdapter(words ...string) (*Reader, error) {
	a := adapter(words)
	hello, _, err := a.run(nil)
	if err != nil {
		return nil, err
	}
	return &Reader{Hello: hello, Ask: a.ask}, nil
}

// ask asks a question.
func (a adapter) ask(q *vector.Question) (vector.Reply, error) {
	line, err := json.Marshal(q)
	if err != nil {
		return vector.Reply{}, err
	}
	_, reply, err := a.run(append(line, '\n'))
	if err == nil && reply.ID != q.ID {
		err = fmt.Errorf("answer to question %d, not %d", reply.ID, q.ID)
	}
	return reply, err
}

// run runs the adapter with a question, or without input. It returns the adapter's first line and its reply.
func (a adapter) run(question []byte) (hello vector.Hello, reply vector.Reply, err error) {
	const timeout = 10 * time.Minute // for readers that do not terminate
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, a[0], a[1:]...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = bytes.NewReader(question), &stderr
	out, err := cmd.Output()
	lines := json.NewDecoder(bytes.NewReader(out))
	if lines.Decode(&hello) != nil || hello.Reader == "" {
		return hello, reply, fmt.Errorf("%s: its first line does not name a reader: %.200q", a[0], out)
	}
	switch {
	case question == nil || err == nil && lines.Decode(&reply) == nil:
		return hello, reply, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer in %v", timeout)
	case err == nil:
		err = errors.New("no answer")
	default:
		err = fmt.Errorf("ended: %w %.300s", err, strings.TrimSpace(stderr.String()))
	}
	return hello, reply, err
}
