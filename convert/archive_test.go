package convert_test

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// output returns the standard output of a command.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return string(b)
}

// memberSize matches the size of a member in the output of ar tv.
var memberSize = regexp.MustCompile(`(?m)^(\S+ \S+) +\d+ `)

// TestArchive converts an archive with members of all kinds. GNU ar, nm and ld must find the same members and symbols
// as before.
func TestArchive(t *testing.T) {
	const long = "a-member-with-a-name-of-many-letters"
	dir := peer.Run(t, "sid", `
		g++-16 -O2 -ffunction-sections -c one.cc
		g++-16 -O2 -ffunction-sections -c two.cc -o `+long+`.o
		as hand_amd64.s -o hand.o
		echo 'int data = 1;' | gcc-16 -xc -c - -o data.o
		printf odd >odd; printf 'even' >a-file-that-is-no-object-at-all
		ar rcsU lib.a odd `+long+`.o hand.o data.o a-file-that-is-no-object-at-all`,
		"../testdata/cxx/parts.h", "../testdata/cxx/one.cc", "../testdata/cxx/two.cc", "../testdata/cxx/hand_amd64.s")
	ar, nm := peer.Tool(t, "sid", "ar"), peer.Tool(t, "sid", "nm")
	in, out := filepath.Join(dir, "lib.a"), filepath.Join(dir, "new.a")
	opt := convert.Options{Version: sframe.V3}
	ctx := context.Background()
	res := must.Get(files.Convert(ctx, in, out, files.Options{Work: files.Add(opt, "")}))(t)
	var kept []string
	for _, k := range res.Kept {
		kept = append(kept, k.Member)
	}
	if len(res.Facts) != 2 || strings.Join(kept, " ") != "odd data.o a-file-that-is-no-object-at-all" {
		t.Errorf("%d members were converted, and %v kept; want 2 and the others", len(res.Facts), kept)
	}

	attributes := func(path string) string {
		return memberSize.ReplaceAllString(output(t, ar("tv", path)), "$1 ")
	}
	if want, got := attributes(in), attributes(out); got != want {
		t.Errorf("ar tv, without sizes:\n%s\nbefore:\n%s", got, want)
	}
	index := func(path string) string {
		s, _, found := strings.Cut(output(t, nm("-s", path)), "\n\n")
		if !found || !strings.Contains(s, "by_hand in hand.o") {
			t.Errorf("%s has no symbol index:\n%s", path, s)
		}
		return s
	}
	if want, got := index(in), index(out); got != want {
		t.Errorf("nm -s:\n%s\nbefore:\n%s", got, want)
	}
	for _, name := range []string{"odd", long + ".o", "hand.o", "data.o", "a-file-that-is-no-object-at-all"} {
		got := output(t, ar("p", out, name))
		want := string(testfile.Read(t, filepath.Join(dir, name)))
		if strings.HasSuffix(name, ".o") && name != "data.o" {
			alone := must.Get(tryRun(t, filepath.Join(dir, name), opt))(t)
			want = string(testfile.Read(t, alone))
		}
		if got != want {
			t.Errorf("member %s differs from the object converted alone", name)
		}
	}

	peer.Again(t, "sid", dir, "g++-16 one.o new.a -o prog; ./prog")
	r := must.Get(linked.Check(filepath.Join(dir, "prog")))(t)
	for _, name := range []string{"by_hand", "calls_back", "_Z3twoi", "_Z9square_ofi"} {
		if r.Missing[name] > 0 || r.Wrong[name] > 0 {
			t.Errorf("linked with the archive, %s is missing or wrong", name)
		}
	}
	if r.Missing["main"] == 0 {
		t.Error("the object that was not converted is described, so this test proves nothing")
	}

	removed := must.Get(tryJob(t, out, remove("")))(t)
	if !bytes.Equal(testfile.Read(t, removed), testfile.Read(t, in)) {
		t.Error("removing .sframe does not restore the original")
	}
}
