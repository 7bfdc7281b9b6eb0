package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// header returns a member's header (ar(5) of the GNU kind): name, date, owner, group and
// mode, size, and the two bytes that end it.
func header(name string, size any) string {
	return fmt.Sprintf("%-16s%-12s%-6s%-6s%-8s%-10v`\n", name, "1700000000", "1000", "100", "100644", size)
}

// member returns a member with what comes after it.
func member(name, contents string) string {
	s := header(name, len(contents)) + contents
	if len(s)&1 != 0 {
		s += "\n"
	}
	return s
}

// index returns the contents of a symbol index of 32-bit entries.
func index(offsets ...uint32) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(offsets)))
	for _, v := range offsets {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for i := range offsets {
		b = fmt.Appendf(b, "sym%d\x00", i)
	}
	return string(b)
}

// index64 is index with 64-bit entries.
func index64(offsets ...uint64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(len(offsets)))
	for _, v := range offsets {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return string(b) + "sym\x00"
}

// file writes contents to a file and opens it.
func file(t testing.TB, contents string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.a")
	if err := os.WriteFile(path, []byte(contents), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// rewrite writes an archive again, with the contents that change returns.
func rewrite(t testing.TB, a *Archive, change func(name, contents string) string) (string, error) {
	t.Helper()
	dst := file(t, "")
	w, err := a.NewWriter(context.Background(), dst)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Members {
		m := &a.Members[i]
		if m.Special() {
			if err := w.Keep(i); err != nil {
				return "", err
			}
			continue
		}
		b, err := io.ReadAll(a.Contents(i))
		if err != nil {
			t.Fatal(err)
		}
		s := change(m.Name, string(b))
		if err := w.Add(i, strings.NewReader(s), int64(len(s))); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	b, err := os.ReadFile(dst.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), nil
}

func same(_, contents string) string { return contents }

const (
	table = "a-long-name-of-a-member.o/\nanother-long-name.o/\n"
)

// TestRewrite changes the sizes of members, odd ones among them.
func TestRewrite(t *testing.T) {
	build := func(first, second, third string) string {
		head := int64(len(Magic)) + headerSize + int64(len(index(0, 0, 0))+1) + headerSize + int64(len(table)+
			len(table)&1)
		off := []int64{head}
		for _, s := range []string{first, second} {
			off = append(off, off[len(off)-1]+headerSize+int64(len(s)+len(s)&1))
		}
		// Symbols of the second, the first and the third member.
		return Magic + member("/", index(uint32(off[1]), uint32(off[0]), uint32(off[2]))) + member("//", table) +
			member("/0", first) + member("short.o/", second) + member("/27", third)
	}
	before := build("odd", "even", "the end")
	a, err := Open(file(t, before), int64(len(before)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range a.Members {
		if m := &a.Members[i]; !m.Special() {
			names = append(names, m.Name)
		}
	}
	if got := strings.Join(names, " "); got != "a-long-name-of-a-member.o short.o another-long-name.o" {
		t.Errorf("members %q", got)
	}
	if got, err := rewrite(t, a, same); err != nil || got != before {
		t.Errorf("written again, the archive is\n%q\nand was\n%q (%v)", got, before, err)
	}
	got, err := rewrite(t, a, func(name, contents string) string {
		if name == "short.o" {
			return contents
		}
		return contents + " and more"
	})
	if want := build("odd and more", "even", "the end and more"); err != nil || got != want {
		t.Errorf("the archive is\n%q\nand should be\n%q (%v)", got, want, err)
	}
}

// TestIndex64 changes the sizes of members after a 64-bit index.
func TestIndex64(t *testing.T) {
	build := func(first, second string) string {
		head := uint64(len(Magic) + headerSize + len(index64(0, 0)))
		return Magic + member("/SYM64/", index64(head, head+headerSize+uint64(len(first)))) + member("a.o/",
			first) + member("b.o/", second)
	}
	before := build("xx", "yy")
	a, err := Open(file(t, before), int64(len(before)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := rewrite(t, a, func(_, contents string) string { return contents + contents })
	if want := build("xxxx", "yyyy"); err != nil || got != want {
		t.Errorf("the archive is\n%q\nand should be\n%q (%v)", got, want, err)
	}
}

// TestNoIndex has archives that are fine without a symbol index, or with an empty one.
func TestNoIndex(t *testing.T) {
	for _, s := range []string{
		Magic,
		Magic + member("a.o/", "abc"),
		Magic + member("/", "") + member("a.o/", "abc"),
		Magic + member("/", "\x00\x00\x00\x00") + member("a.o/", "abc"),
		Magic + member("a.o", "without a slash") + member("", "no name"),
	} {
		a, err := Open(file(t, s), int64(len(s)))
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
	a, err := Open(file(t, s[:len(s)-1]), int64(len(s)-1))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rewrite(t, a, same); err != nil || got != s {
		t.Errorf("%q (%v)", got, err)
	}
}

// broken is a file that the system cannot read.
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

// FuzzOpen reads arbitrary bytes as an archive. What can be read can be written again,
// with the same names and contents, and comes out the same when it is done twice.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(Magic))
	f.Add([]byte(Magic + member("/", index(82)) + member("a.o/", "abcd")))
	f.Add([]byte(Magic + member("/SYM64/", index64(88)) + member("a.o/", "abc") + member("b.o/", "")))
	f.Add([]byte(Magic + member("//", table) + member("/0", "abc") + member("/27", "abcdef")))
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
		a, err := Open(file(t, string(data)), int64(len(data)))
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
				t.Fatalf("member %d, at %#x of %d bytes, is not behind %#x, or not inside %d bytes", i, m.Off, m.Size,
					end, len(data))
			}
			end = m.Off + m.Size
		}
		grow := func(_, contents string) string { return contents + "." }
		grown, err := rewrite(t, a, grow)
		if err != nil {
			return
		}
		b, err := Open(file(t, grown), int64(len(grown)))
		if err != nil || len(b.Members) != len(a.Members) {
			t.Fatalf("written again, it cannot be read: %v", err)
		}
		for i := range b.Members {
			x, y := &a.Members[i], &b.Members[i]
			if x.Name != y.Name || !x.Special() && y.Size != x.Size+1 {
				t.Fatalf("member %d was %q of %d bytes, and is %q of %d", i, x.Name, x.Size, y.Name, y.Size)
			}
		}
		shrunk, err := rewrite(t, b, func(_, contents string) string { return contents[:len(contents)-1] })
		if err != nil {
			t.Fatal(err)
		}
		plain, err := rewrite(t, a, same)
		if err != nil || plain != shrunk {
			t.Fatalf("grown and shrunk, it is\n%q\nand without that\n%q (%v)", shrunk, plain, err)
		}
	})
}
