package main

import (
	"bytes"
	"encoding/binary"
	"testing"

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
	for _, tt := range []struct {
		name   string
		data   []byte
		make   func() []byte
		args   []string
		status int
		want   string
		long   bool // it takes long
	}{
		{name: "nothing wrong, removed", data: elftest.Ar(one, text), args: []string{"remove"},
			want: "unchanged members: 1 (the file has no .sframe section)"},
		{name: "thin", data: []byte("!<thin>\n"), status: 1,
			want: "archive at offset 0x0: unsupported kind of archive: a thin archive"},

		{name: "long name behind the table", data: elftest.Ar(elftest.ArMember("//", []byte("name/\n")),
			elftest.ArMember("/6", nil)), status: 1,
			want: `member's name "/6" does not lead into the table of names of 6 bytes`},
		{name: "names that talk to the terminal", data: elftest.Ar(elftest.ArMember("\x1b]0;x\x07/", bad.Bytes())),
			status: 1, want: "member ?]0;x?: "},
		{name: "names that are paths", data: elftest.Ar(elftest.ArMember("../../../x/", elftest.NewObject().Bytes())),
			want: "describes (64 of "},

		{name: "member that is broken", data: elftest.Ar(one, wrong), status: 1,
			want: "member bad.o: section header table at file offset"},
		{name: "members that have .sframe", make: func() []byte {
			o := elftest.NewObject()
			o.Add(".sframe", 1, 2, make([]byte, 32))
			return elftest.Ar(one, elftest.ArMember("two.o/", o.Bytes()))
		}, status: 1, want: "member two.o: the file has an .sframe section already; --update or --force replaces it"},

		{name: "200,000 small members", long: true,
			make: func() []byte { return elftest.Ar(bytes.Repeat(text, 200_000), one) },
			want: "unchanged members: 200000 (not an ELF file)"},
		{name: "100,000 names of 64 KiB", make: func() []byte {
			return elftest.Ar(elftest.ArMember("//", append(bytes.Repeat([]byte("x"), 64<<10), "/\n"...)),
				bytes.Repeat(elftest.ArMember("/0", nil), 100_000), one)
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
