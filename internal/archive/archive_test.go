package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// header returns a member's header (GNU ar): name, date, owner, group, mode, size, and two terminating bytes.
func header(name string, size any) string {
	return fmt.Sprintf("%-16s%-12s%-6s%-6s%-8s%-10v`\n", name, "1700000000", "1000", "100", "100644", size)
}

// member returns a member with its padding.
func member(name, contents string) string {
	s := header(name, len(contents)) + contents
	if len(s)&1 != 0 {
		s += "\n"
	}
	return s
}

// openFile writes contents to a new file and opens it.
func openFile(t testing.TB, contents string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.a")
	testfile.Write(t, path, contents)
	f := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

// rewrite rewrites an archive with contents returned by change.
func rewrite(t testing.TB, a *Archive, change func(name, contents string) string) (string, error) {
	t.Helper()
	dst := openFile(t, "")
	w := must.Get(a.NewWriter(context.Background(), dst))(t)
	for i := range a.Members {
		m := &a.Members[i]
		if m.Special() {
			if err := w.Keep(i); err != nil {
				return "", err
			}
			continue
		}
		b := must.Get(io.ReadAll(a.Contents(i)))(t)
		s := change(m.Name, string(b))
		if err := w.Add(i, strings.NewReader(s), int64(len(s))); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	b := testfile.Read(t, dst.Name())
	return string(b), nil
}

func same(_, contents string) string { return contents }

// TestNoIndex rewrites valid archives without a symbol index, or with an empty one.
func TestNoIndex(t *testing.T) {
	for _, s := range []string{
		Magic,
		Magic + member("a.o/", "abc"),
		Magic + member("/", "") + member("a.o/", "abc"),
		Magic + member("/", "\x00\x00\x00\x00") + member("a.o/", "abc"),
		Magic + member("a.o", "without a slash") + member("", "no name"),
	} {
		a, err := Open(openFile(t, s), int64(len(s)))
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if got, err := rewrite(t, a, same); err != nil || got != s {
			t.Errorf("%q becomes %q (%v)", s, got, err)
		}
	}
	// The last member may lack its padding.
	s := Magic + member("a.o/", "abc")
	a := must.Get(Open(openFile(t, s[:len(s)-1]), int64(len(s)-1)))(t)
	if got, err := rewrite(t, a, same); err != nil || got != s {
		t.Errorf("%q (%v)", got, err)
	}
}

// broken is a file that cannot be read.
type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func TestIs(t *testing.T) {
	for s, want := range map[string]bool{
		Magic: true, thinMagic + "x": true, Magic[:7]: false, "": false, "\x7fELF....": false, "!<arch>\r": false,
	} {
		if got, err := Is(strings.NewReader(s)); got != want || err != nil {
			t.Errorf("Is(%q) is %t, error %v", s, got, err)
		}
	}
	if _, err := Is(broken{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("of a file that cannot be read the error is %v", err)
	}
}

// TestManyMembers opens archives with the maximum number of members, and with one more.
func TestManyMembers(t *testing.T) {
	one := member("a/", "")
	for n, want := range map[int]string{maxMembers: "<nil>", maxMembers +
		1: fmt.Sprintf("archive at offset %#x: more than 524288 members", 8+60*maxMembers)} {
		all := Magic + strings.Repeat(one, n)
		a, err := Open(strings.NewReader(all), int64(len(all)))
		if fmt.Sprint(err) != want || err == nil && len(a.Members) != n {
			t.Errorf("%d members: error %v, want %s", n, err, want)
		}
	}
}

// FuzzOpen reads arbitrary bytes as an archive. If an archive can be rewritten with larger members, restoring their
// contents must give the same bytes as rewriting the archive without changes.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(Magic))
	f.Add(elftest.Ar(elftest.ArMember("/", elftest.ArIndex(4, 1, 140)), elftest.ArMember("a.o/", []byte("abcd"))))
	f.Add(elftest.Ar(elftest.ArMember("/SYM64/", elftest.ArIndex(8, 1, 148)), elftest.ArMember("a.o/", []byte("abc"))))
	f.Add([]byte(Magic + member("//", "a-long-name-of-a-member.o/\nanother-long-name.o/\n") + member("/0", "abc") +
		member("/27", "abcdef")))
	f.Add([]byte(thinMagic + header("a.o/", 4)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if is, err := Is(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		} else if !is {
			return
		}
		a, err := Open(openFile(t, string(data)), int64(len(data)))
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Off < 0 || e.Off > int64(len(data)) {
				t.Fatalf("error %v of %d bytes", err, len(data))
			}
			return
		}
		var end int64
		for i := range a.Members {
			m := &a.Members[i]
			if m.Off < end || m.Size < 0 || m.Off+m.Size > int64(len(data)) {
				t.Fatalf("member %d, at %#x of %d bytes, is not after %#x, or not within %d bytes", i, m.Off, m.Size,
					end, len(data))
			}
			end = m.Off + m.Size
		}
		grow := func(_, contents string) string { return contents + "." }
		grown, err := rewrite(t, a, grow)
		if err != nil {
			return
		}
		b, err := Open(openFile(t, grown), int64(len(grown)))
		if err != nil || len(b.Members) != len(a.Members) {
			t.Fatalf("written again, it cannot be read: %v", err)
		}
		for i := range b.Members {
			x, y := &a.Members[i], &b.Members[i]
			if x.Name != y.Name || !x.Special() && y.Size != x.Size+1 {
				t.Fatalf("member %d was %q of %d bytes, and is %q of %d", i, x.Name, x.Size, y.Name, y.Size)
			}
		}
		shrunk := must.Get(rewrite(t, b, func(_, contents string) string { return contents[:len(contents)-1] }))(t)
		plain, err := rewrite(t, a, same)
		if err != nil || plain != shrunk {
			t.Fatalf("grown and shrunk, it is\n%q\nand without that\n%q (%v)", shrunk, plain, err)
		}
	})
}
