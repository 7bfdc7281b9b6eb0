package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// TestOpenErrors checks the errors, with their offsets, for malformed and unsupported archives.
func TestOpenErrors(t *testing.T) {
	one := elftest.ArMember("one.o/", []byte("text"))
	names := elftest.ArMember("//", []byte("name/\n")) // 66 bytes, the next member is at 8+66
	for _, tt := range []struct {
		name string
		data []byte
		off  int64
		msg  string
	}{
		{"half a magic", []byte("!<arch"), 0, "EOF"},
		{"thin", []byte("!<thin>\n"), 0, "a thin archive"},
		{"BSD names", elftest.Ar(elftest.ArMember("#1/20", make([]byte, 40))), 8, "unsupported kind of archive: BSD"},
		{"BSD index", elftest.Ar(elftest.ArMember("__.SYMDEF", make([]byte, 40))), 8,
			"unsupported kind of archive: BSD"},
		{"header cut off", append(elftest.Ar(one), "name"...), 8 + 64,
			"4 bytes are left, fewer than the 60 of a member's header"},
		{"header without its end", elftest.Ar(bytes.ReplaceAll(one, []byte("`\n"), []byte("``"))), 8,
			"not a member header: it ends in 60 60, not 60 0a"},
		{"a byte after the last member", append(elftest.Ar(one), 0), 8 + 64, "1 bytes are left, fewer"},
		{"members that are not aligned", elftest.Ar(append([]byte{'\n'}, one...)), 8, "not a member header"},
		{"the second member without its end", elftest.Ar(one, bytes.ReplaceAll(one, []byte("`\n"), []byte("``"))),
			8 + 64, "not a member header"},

		{"size empty", elftest.Ar(elftest.ArSized("a/", "", nil)), 8,
			`member of size "" does not fit in the archive of 68 bytes`},
		{"size negative", elftest.Ar(elftest.ArSized("a/", "-1", nil)), 8, `member of size "-1"`},
		{"size with a plus", elftest.Ar(elftest.ArSized("a/", "+4", []byte("text"))), 8, `member of size "+4"`},
		{"size in hexadecimal", elftest.Ar(elftest.ArSized("a/", "0x4", []byte("text"))), 8, `member of size "0x4"`},
		{"size with blanks before it", elftest.Ar(elftest.ArSized("a/", "  4", []byte("text"))), 8,
			`member of size "  4"`},
		{"size past the end", elftest.Ar(elftest.ArSized("a/", "5", []byte("text"))), 8,
			`member of size "5" does not fit in the archive of 72 bytes`},
		{"size 9,999,999,999", elftest.Ar(elftest.ArSized("a/", "9999999999", nil)), 8, `member of size "9999999999"`},
		{"size with a zero byte", elftest.Ar(elftest.ArSized("a/", "4\x00", []byte("text"))), 8,
			`member of size "4\x00"`},

		{"long name without a table", elftest.Ar(elftest.ArMember("/0", []byte("text"))), 8,
			`member name "/0" points outside the name table of 0 bytes`},
		{"long name after the table", elftest.Ar(names, elftest.ArMember("/6", nil)), 8 + 66,
			`member name "/6" points outside the name table of 6 bytes`},
		{"long name at 2^64", elftest.Ar(names, elftest.ArMember("/18446744073709", nil)), 8 + 66,
			"points outside the name table of 6 bytes"},
		{"long name that is no number", elftest.Ar(names, elftest.ArMember("/x", nil)), 8 + 66, `member name "/x"`},
		{"long name negative", elftest.Ar(names, elftest.ArMember("/-1", nil)), 8 + 66, `member name "/-1"`},
		{"long name without end", elftest.Ar(elftest.ArMember("//", []byte("name")), elftest.ArMember("/0", nil)),
			8 + 64, `is not terminated within 4096 bytes`},
		{"long name of 8 KiB", elftest.Ar(elftest.ArMember("//", append(bytes.Repeat([]byte("x"), 8190), "/\n"...)),
			elftest.ArMember("/0", nil)), 8 + 60 + 8192, "is not terminated within 4096 bytes"},
		{"two tables of names", elftest.Ar(names, names), 8 + 66, "second name table"},
		{"table of names past the end", elftest.Ar(elftest.ArSized("//", "1000", nil)), 8, `member of size "1000"`},
	} {
		_, err := Open(openFile(t, string(tt.data)), int64(len(tt.data)))
		var e *Error
		if !errors.As(err, &e) || e.Off != tt.off || !strings.Contains(err.Error(), tt.msg) {
			t.Errorf("%s: %v; want offset %#x, %q", tt.name, err, tt.off, tt.msg)
		}
		if kind := tt.name == "thin" || strings.HasPrefix(tt.name, "BSD"); errors.Is(err, ErrKind) != kind {
			t.Errorf("%s: %v is an error of the kind of archive: %t, want %t", tt.name, err, !kind, kind)
		}
	}
}

// TestIndexErrors checks the errors for symbol indexes that are truncated, or do not refer to the start of a member.
func TestIndexErrors(t *testing.T) {
	one := elftest.ArMember("one.o/", []byte("text"))
	const at = 8 + 60 // the contents of the index
	for _, tt := range []struct {
		name, index string
		data        []byte
		msg         string // error message, or "" for none
	}{
		{"empty", "/", nil, ""},
		{"of three zero bytes", "/", []byte{0, 0, 0}, ""},
		{"of three bytes", "/", []byte{0, 0, 1}, "symbol index of 3 bytes is too short"},
		{"with 2^32-1 entries", "/", elftest.ArIndex(4, math.MaxUint32),
			"symbol index has 4294967295 entries, but only 68 bytes"},
		{"with an entry too many", "/", elftest.ArIndex(4, 17),
			"symbol index has 17 entries, but only 68 bytes"},
		{"with an entry for the magic", "/", elftest.ArIndex(4, 1, 0),
			"entry 0 of the symbol index is 0x0, where no member starts"},
		{"with an entry past the end", "/", elftest.ArIndex(4, 1, math.MaxUint32),
			"entry 0 of the symbol index is 0xffffffff, where no member starts"},
		{"with an entry for contents", "/", elftest.ArIndex(4, 1, at),
			"entry 0 of the symbol index is 0x44, where no member starts"},
		{"with an entry", "/", elftest.ArIndex(4, 1, at+72), ""},
		{"of 64 bits with an entry", "/SYM64/", elftest.ArIndex(8, 1, at+80), ""},
		{"of 64 bits with 2^64-1 entries", "/SYM64/", elftest.ArIndex(8, math.MaxUint64),
			"symbol index has 18446744073709551615 entries, but only 72 bytes"},
		{"of 64 bits with 2^61 entries", "/SYM64/", elftest.ArIndex(8, 1<<61),
			"symbol index has 2305843009213693952 entries, but only 72 bytes"},
		{"of 64 bits with an entry 2^64-1", "/SYM64/", elftest.ArIndex(8, 1, math.MaxUint64),
			"entry 0 of the symbol index is 0xffffffffffffffff, where no member starts"},
	} {
		data := elftest.Ar(elftest.ArMember(tt.index, tt.data), one)
		a, err := Open(openFile(t, string(data)), int64(len(data)))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got, err := rewrite(t, a, same)
		var e *Error
		switch {
		case tt.msg == "" && (err != nil || got != string(data)):
			t.Errorf("%s: %v, or the archive differs", tt.name, err)
		case tt.msg != "" && (!errors.As(err, &e) || e.Off != at || !strings.Contains(e.Err.Error(), tt.msg)):
			t.Errorf("%s: %v; want offset %#x, %q", tt.name, err, at, tt.msg)
		}
	}
}

// TestWriteErrors checks that each step returns an error if the output or the input fails.
func TestWriteErrors(t *testing.T) {
	data := elftest.Ar(elftest.ArMember("/", elftest.ArIndex(4, 0)), elftest.ArMember("one.o/", []byte("text")),
		elftest.ArMember("two.o/", []byte("text")))
	f := openFile(t, string(data))
	a := must.Get(Open(f, int64(len(data))))(t)
	closed := openFile(t, "")
	closed.Close()
	if _, err := a.NewWriter(t.Context(), closed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("NewWriter: %v", err)
	}
	writer := func() (*Writer, *os.File) {
		dst := openFile(t, "")
		w := must.Get(a.NewWriter(t.Context(), dst))(t)
		return w, dst
	}
	for name, step := range map[string]func(w *Writer) error{
		"Add": func(w *Writer) error { return w.Add(1, strings.NewReader("other"), 5) },
		"Add after a Keep": func(w *Writer) error {
			return errors.Join(w.Keep(0), w.Add(1, strings.NewReader("other"), 5))
		},
		"Close":              func(w *Writer) error { return errors.Join(w.Keep(0), w.Close()) },
		"Keep of another":    func(w *Writer) error { return errors.Join(w.Keep(0), w.Keep(2)) },
		"Close with nothing": func(w *Writer) error { w.at = []int64{8, 0, 0}; return w.Close() },
	} {
		w, dst := writer()
		dst.Close()
		if err := step(w); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s, the output is closed: %v", name, err)
		}
	}
	w, _ := writer()
	if err := w.Add(1, closed, 5); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add of a closed file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w = must.Get(a.NewWriter(ctx, openFile(t, "")))(t)
	if err := w.Add(1, strings.NewReader("other"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("Add after the end: %v", err)
	}
	w, _ = writer()
	must.Do(t, w.Keep(0))
	f.Close()
	if _, err := a.Contents(1).ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Contents, the input is closed: %v", err)
	}
	if err := errors.Join(w.Add(1, strings.NewReader("other"), 5), w.Close()); strings.Count(fmt.Sprint(err),
		"file already closed") != 2 {
		t.Errorf("Add and Close, the input is closed: %v", err)
	}
}

// TestSizes checks the errors for unsupported sizes, with sparse files.
func TestSizes(t *testing.T) {
	data := elftest.Ar(elftest.ArSized("//", "200000000", nil))
	f := openFile(t, string(data))
	const size = 8 + 60 + 200_000_000
	must.Do(t, f.Truncate(size))
	if _, err := Open(f, size); err == nil ||
		!strings.Contains(err.Error(), "archive at offset 0x44: // of 200000000 bytes; at most 134217728 are "+
			"supported") {
		t.Errorf("table of names: %v", err)
	}
	data = elftest.Ar(elftest.ArMember("one.o/", []byte("text")))
	a := must.Get(Open(openFile(t, string(data)), int64(len(data))))(t)
	w := must.Get(a.NewWriter(t.Context(), openFile(t, "")))(t)
	large := openFile(t, "")
	if err := large.Truncate(10_000_000_000); err != nil {
		t.Skipf("no files of that size: %v", err)
	}
	if err := w.Add(0, large, 10_000_000_000); err == nil ||
		err.Error() != "one.o: an archive cannot express a size of 10000000000 bytes" {
		t.Errorf("Add: %v", err)
	}
}
