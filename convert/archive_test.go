package convert_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// output runs a command and returns what it prints on standard output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return string(b)
}

// memberSize is the size in a line of ar tv.
var memberSize = regexp.MustCompile(`(?m)^(\S+ \S+) +\d+ `)

// TestArchive converts an archive with members of all kinds, and expects GNU ar, nm and
// ld to find in it what they found before.
func TestArchive(t *testing.T) {
	const long = "a-member-with-a-name-of-many-letters"
	dir := peer.Run(t, "sid", `
		g++-16 -O2 -ffunction-sections -c one.cc
		g++-16 -O2 -ffunction-sections -c two.cc -o `+long+`.o
		as hand_amd64.s -o hand.o
		echo 'int data = 1;' | gcc-16 -xc -c - -o data.o
		printf odd >odd; printf 'even' >a-file-that-is-no-object-at-all
		ar rcsU lib.a odd `+long+`.o hand.o data.o a-file-that-is-no-object-at-all
		ar rcs `+long+`2.a `+long+`.o hand.o`,
		"../testdata/cxx/parts.h", "../testdata/cxx/one.cc", "../testdata/cxx/two.cc", "../testdata/cxx/hand_amd64.s")
	ar, nm := peer.Tool(t, "sid", "ar"), peer.Tool(t, "sid", "nm")
	in, out := filepath.Join(dir, "lib.a"), filepath.Join(dir, "new.a")
	opt := convert.Options{Version: sframe.V3}
	ctx := context.Background()
	res, err := files.Convert(ctx, in, out, files.Options{Work: files.Add(opt, "")})
	if err != nil {
		t.Fatal(err)
	}
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
			alone, err := tryRun(t, filepath.Join(dir, name), opt)
			if err != nil {
				t.Fatal(err)
			}
			want = string(testfile.Read(t, alone))
		}
		if got != want {
			t.Errorf("member %s is not what comes of converting it alone", name)
		}
	}

	// GNU ar, making an archive of converted objects, comes to the same.
	short, byAr := filepath.Join(dir, long+"2.a"), filepath.Join(dir, "byar.a")
	if _, err := files.Convert(ctx, short, short, files.Options{Work: files.Add(opt, "")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{long + ".o", "hand.o"} {
		path := filepath.Join(dir, name)
		if _, err := files.Convert(ctx, path, path, files.Options{Work: files.Add(opt, "")}); err != nil {
			t.Fatal(err)
		}
	}
	peer.Again(t, "sid", dir, "ar rcs byar.a "+long+".o hand.o")
	if !bytes.Equal(testfile.Read(t, short), testfile.Read(t, byAr)) {
		t.Error("ar rcs of converted objects makes another archive than converting the archive")
	}

	peer.Again(t, "sid", dir, "g++-16 one.o new.a -o prog; ./prog")
	r, err := linked.Check(filepath.Join(dir, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"by_hand", "calls_back", "_Z3twoi", "_Z9square_ofi"} {
		if r.Missing[name] > 0 || r.Wrong[name] > 0 {
			t.Errorf("linked with the archive, %s is missing or wrong", name)
		}
	}
	if r.Missing["main"] == 0 {
		t.Error("the object that was not converted is described; so the above says nothing")
	}

	if _, err := tryRun(t, out, opt); !errors.Is(err, elfwrite.ErrExists) ||
		!strings.Contains(err.Error(), "member "+long+".o: ") {
		t.Errorf("a second conversion says %v", err)
	}
	again, err := tryRun(t, out, convert.Options{Version: sframe.V3, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(testfile.Read(t, out), testfile.Read(t, again)) {
		t.Error("a second conversion, with --force, gives something else")
	}
	removed, err := tryJob(t, out, remove(""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(testfile.Read(t, removed), testfile.Read(t, in)) {
		t.Error("removing .sframe does not give the original back")
	}
}

// TestPartlyConverted expects of an archive of which some members have an .sframe to be
// refused, but with --force.
func TestPartlyConverted(t *testing.T) {
	dir := peer.Run(t, "sid", "g++-16 -O2 -fPIC -c two.cc; as hand_amd64.s -o hand.o",
		"../testdata/cxx/parts.h", "../testdata/cxx/two.cc", "../testdata/cxx/hand_amd64.s")
	path := filepath.Join(dir, "two.o")
	if _, err := files.Convert(context.Background(), path, path,
		files.Options{Work: files.Add(convert.Options{Version: sframe.V2}, "")}); err != nil {
		t.Fatal(err)
	}
	peer.Again(t, "sid", dir, "ar rcs lib.a hand.o two.o")
	lib := filepath.Join(dir, "lib.a")
	if _, err := tryRun(t, lib, convert.Options{Version: sframe.V3}); !errors.Is(err, elfwrite.ErrExists) ||
		!strings.Contains(err.Error(), "member two.o: ") {
		t.Errorf("the conversion says %v", err)
	}
	out, err := tryRun(t, lib, convert.Options{Version: sframe.V3, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	// Only the members of V2 would be left out.
	if err := os.WriteFile(filepath.Join(dir, "new.a"), testfile.Read(t, out), 0o666); err != nil {
		t.Fatal(err)
	}
	peer.Again(t, "sid", dir, "ld -shared --whole-archive new.a -o new.so")
	if r, err := linked.Check(filepath.Join(dir, "new.so")); err != nil ||
		r.Covered+r.Wrong[".plt.got"] != r.Described {
		t.Errorf("%+v (%v)", r, err)
	}
}
