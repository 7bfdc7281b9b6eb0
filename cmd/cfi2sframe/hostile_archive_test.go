package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
)

// TestHostileArchives has archives that no ar makes.
func TestHostileArchives(t *testing.T) {
	one := elftest.ArMember("one.o/", elftest.NewObject().Bytes())
	bad := elftest.NewObject()
	bad.Sections[elftest.ObjRela].Link = 0
	wrong := elftest.ArMember("bad.o/", bad.Bytes())
	text := elftest.ArMember("text/", []byte("text"))
	index := func(name string, b []byte) []byte { return elftest.Ar(elftest.ArMember(name, b), one) }
	for _, tt := range []struct {
		name   string
		data   []byte
		make   func() []byte
		args   []string
		status int
		want   string
		long   bool // it takes long
	}{
		{name: "nothing wrong", data: elftest.Ar(one), want: "describes (64 of "},
		{name: "nothing wrong, removed", data: elftest.Ar(one, text), args: []string{"remove"},
			want: "unchanged members: 1 (the file has no .sframe section)"},
		{name: "magic only", data: elftest.Ar()},
		{name: "thin", data: []byte("!<thin>\n"), status: 1,
			want: "archive at offset 0x0: unsupported kind of archive: a thin archive"},
		{name: "BSD names", data: elftest.Ar(elftest.ArMember("#1/20", make([]byte, 40))), status: 1,
			want: "archive at offset 0x8: unsupported kind of archive: BSD"},
		{name: "header cut off", data: append(elftest.Ar(one), "name"...), status: 1,
			want: "4 bytes are left, fewer than the 60 of a member's header"},

		{name: "size past the end", data: elftest.Ar(elftest.ArSized("a/", "5", []byte("text"))), status: 1,
			want: `member of size "5" does not fit the archive of 72 bytes`},
		{name: "size with zeros before it", data: elftest.Ar(elftest.ArSized("a/", "0000000004", []byte("text")), one),
			want: "describes (64 of "},

		{name: "long name behind the table", data: elftest.Ar(elftest.ArMember("//", []byte("name/\n")),
			elftest.ArMember("/6", nil)), status: 1,
			want: `member's name "/6" does not lead into the table of names of 6 bytes`},
		{name: "long name empty", data: elftest.Ar(elftest.ArMember("//", []byte("/\n")),
			elftest.ArMember("/0", elftest.NewObject().Bytes())), want: "describes (64 of "},
		{name: "table of names empty", data: elftest.Ar(elftest.ArMember("//", nil), one), want: "describes (64 of "},
		{name: "no name", data: elftest.Ar(elftest.ArMember("", elftest.NewObject().Bytes())), want: "describes (64 of "},
		{name: "names that talk to the terminal", data: elftest.Ar(elftest.ArMember("\x1b]0;x\x07/", bad.Bytes())),
			status: 1, want: "member ?]0;x?: "},
		{name: "names that talk to the terminal, kept",
			data: elftest.Ar(elftest.ArMember("\x1b]0;x\x07/", []byte("text")), one), args: []string{"-v"},
			want: "(?]0;x?): unchanged"},
		{name: "names that are paths", data: elftest.Ar(elftest.ArMember("../../../x/", elftest.NewObject().Bytes())),
			want: "describes (64 of "},

		{name: "index empty", data: index("/", nil), want: "describes (64 of "},
		{name: "index of 3 zero bytes", data: index("/", []byte{0, 0, 0}), want: "describes (64 of "},
		{name: "index with an entry for contents", data: index("/", elftest.ArIndex(4, 1, 8+60)), status: 1,
			want: "entry 0 of the symbol index is 0x44, where no member begins"},
		{name: "index with an entry for itself", data: index("/", elftest.ArIndex(4, 1, 8)), want: "describes (64 of "},
		{name: "index with an entry", data: index("/", elftest.ArIndex(4, 1, 8+60+72)), want: "describes (64 of "},
		{name: "index of 64 bits", data: index("/SYM64/", elftest.ArIndex(8, 1, 8+60+80)), want: "describes (64 of "},
		{name: "index of 64 bits of 7 bytes", data: index("/SYM64/", make([]byte, 7)), want: "describes (64 of "},
		{name: "index last", data: elftest.Ar(one, elftest.ArMember("/", elftest.ArIndex(4, 1, 8))),
			want: "describes (64 of "},
		{name: "two indexes", data: elftest.Ar(elftest.ArMember("/", elftest.ArIndex(4, 0)),
			elftest.ArMember("/", elftest.ArIndex(4, 1, 8)), one), want: "describes (64 of "},

		{name: "archive in an archive", data: elftest.Ar(elftest.ArMember("a.a/", elftest.Ar(one)), one),
			want: "unchanged members: 1 (not an ELF file)"},
		{name: "only an archive in an archive", data: elftest.Ar(elftest.ArMember("a.a/", elftest.Ar(one))),
			want: "unchanged members: 1 (not an ELF file)"},
		{name: "member that is broken", data: elftest.Ar(one, wrong), status: 1,
			want: "member bad.o: section header table at file offset"},
		{name: "member of the ELF magic", data: elftest.Ar(elftest.ArMember("a/", []byte("\x7fELF")), one), status: 1,
			want: "member a: ELF header at file offset 0x0: the file has 4 bytes, less than an ELF header of 64"},
		{name: "member of three bytes of the ELF magic", data: elftest.Ar(elftest.ArMember("a/", []byte("\x7fEL")),
			one), want: "not an ELF file"},
		{name: "member empty", data: elftest.Ar(elftest.ArMember("a/", nil), one), want: "describes (64 of "},
		{name: "members of one name", data: elftest.Ar(one, one, one), want: "describes (192 of "},
		{name: "a linked file", make: func() []byte {
			return elftest.Ar(elftest.ArMember("plt/", fixture(t, "plt")),
				one)
		}, want: "describes (235 of "},
		{name: "members that have .sframe", make: func() []byte {
			o := elftest.NewObject()
			o.Add(".sframe", 1, 2, make([]byte, 32))
			return elftest.Ar(one, elftest.ArMember("two.o/", o.Bytes()))
		}, status: 1, want: "member two.o: the file has an .sframe section already; --update or --force replaces it"},
		{name: "empty objects", data: elftest.Ar(elftest.ArMember("a/",
			elftest.NewObject().Bytes()[:elffile.HeaderSize])), status: 1, want: "member a: section header table"},

		{name: "200,000 small members", long: true,
			make: func() []byte { return elftest.Ar(bytes.Repeat(text, 200_000), one) },
			want: "unchanged members: 200000 (not an ELF file)"},
		{name: "200,000 empty members", long: true,
			make: func() []byte { return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", nil), 200_000), one) },
			want: "unchanged members: 200000"},
		{name: "200,000 small members, removed", long: true,
			make: func() []byte { return elftest.Ar(bytes.Repeat(text, 200_000)) }, args: []string{"remove"},
			want: "unchanged members: 200000 (not an ELF file)"},
		{name: "20,000 ELF headers", long: true, make: func() []byte {
			h := elftest.NewObject().Bytes()[:elffile.HeaderSize]
			copy(h[elftest.EhShoff:], make([]byte, 8))
			copy(h[elftest.EhShnum:], make([]byte, 4))
			return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", h), 20_000), one)
		}, want: "unchanged members: 20000 (no CFI"},
		{name: "2,000 objects", long: true, make: func() []byte { return elftest.Ar(bytes.Repeat(one, 2000)) },
			want: "describes (128,000 of "},
		{name: "100,000 names without end", make: func() []byte {
			return elftest.Ar(elftest.ArMember("//", bytes.Repeat([]byte("x"), 8<<20)),
				bytes.Repeat(elftest.ArMember("/0", nil), 100_000), one)
		}, status: 1, want: "name"},
		{name: "100,000 names of 64 KiB", make: func() []byte {
			return elftest.Ar(elftest.ArMember("//", append(bytes.Repeat([]byte("x"), 64<<10), "/\n"...)),
				bytes.Repeat(elftest.ArMember("/0", nil), 100_000), one)
		}, status: 1, want: "name"},
		{name: "20,000 tables of names", make: func() []byte {
			return elftest.Ar(bytes.Repeat(elftest.ArMember("//", make([]byte, 1000)), 20_000), one)
		}, status: 1, want: "table of names"},
		{name: "a member of the length of a name, in an error", make: func() []byte {
			return elftest.Ar(elftest.ArMember("//", append(bytes.Repeat([]byte("x"), 1<<20), "/\n"...)),
				elftest.ArMember("/0", bad.Bytes()))
		}, status: 1, want: "name"},
		{name: "an index of 16 MiB", long: true, make: func() []byte {
			b := binary.BigEndian.AppendUint32(nil, 4<<20-1)
			b = append(b, bytes.Repeat([]byte{0, 0, 0, 8}, 4<<20-1)...)
			return elftest.Ar(elftest.ArMember("/", b), one)
		}, want: "describes (64 of "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			b := tt.data
			if tt.make != nil {
				b = tt.make()
			}
			o := convertHostile(t, t.TempDir(), b, tt.args...)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// TestHostileTemp makes sure that archives leave nothing where temporary files are.
func TestHostileTemp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	bad := elftest.NewObject()
	bad.Sections[elftest.ObjRela].Link = 0
	one := elftest.ArMember("one.o/", elftest.NewObject().Bytes())
	for _, b := range [][]byte{elftest.Ar(one), elftest.Ar(one, elftest.ArMember("bad.o/", bad.Bytes())),
		elftest.Ar(one, []byte("cut"))} {
		convertHostile(t, t.TempDir(), b)
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("%s is left (%v)", strings.Join(left, " "), err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
