package archive

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// FuzzStructured builds an archive from the bytes, with short and long names, a symbol index of either kind, and
// contents of odd sizes. Reading the archive must return the same members. If the archive is rewritten with some
// members resized, each symbol must still refer to its member.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 40+int(seed)))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 2048 {
			return
		}
		s := choice.From(choices)
		type member struct{ name, contents string }
		var want []member
		var table strings.Builder
		var headers []string
		for i := range 1 + s.N(8) {
			name := fmt.Sprintf("m%d.o", i)
			header := name + "/"
			switch s.N(4) {
			case 0: // as long as the header permits, or one byte longer
				name = strings.Repeat("n", 14+s.N(2)) + name[:1]
				header = name + "/"
			case 1:
				name = strings.Repeat("long_", 1+s.N(40)) + name
				header = ""
			}
			if header == "" || len(header) > 16 {
				header = fmt.Sprintf("/%d", table.Len())
				table.WriteString(name + "/\n")
			}
			want = append(want, member{name, string(s.Bytes(s.N(40)))})
			headers = append(headers, header)
		}
		wide := []int{4, 8, 0}[s.N(3)]
		build := func(contents func(i int) string) string {
			var parts [][]byte
			offset := len(Magic)
			add := func(b []byte) { parts, offset = append(parts, b), offset+len(b) }
			var index []byte
			if wide > 0 { // a placeholder of the right size
				index = elftest.ArIndex(wide, uint64(len(want)), make([]uint64, len(want))...)
				add(elftest.ArMember(map[int]string{4: "/", 8: "/SYM64/"}[wide], index))
			}
			if table.Len() > 0 {
				add(elftest.ArMember("//", []byte(table.String())))
			}
			var at []uint64
			for i := range want {
				at = append(at, uint64(offset))
				add(elftest.ArMember(headers[i], []byte(contents(i))))
			}
			if wide > 0 {
				parts[0] = elftest.ArMember(map[int]string{4: "/", 8: "/SYM64/"}[wide],
					elftest.ArIndex(wide, uint64(len(want)), at...))
			}
			return string(elftest.Ar(parts...))
		}
		data := build(func(i int) string { return want[i].contents })
		a := must.Get(Open(openFile(t, data), int64(len(data))))(t)
		n := 0
		for i := range a.Members {
			m := &a.Members[i]
			if m.Special() {
				continue
			}
			if n == len(want) || m.Name != want[n].name || data[m.Off:m.Off+m.Size] != want[n].contents {
				t.Fatalf("member %d is %q of %d bytes; want %+v", n, m.Name, m.Size, want[min(n, len(want)-1)])
			}
			n++
		}
		if n != len(want) {
			t.Fatalf("%d members; want %d", n, len(want))
		}
		seed := len(choices)
		change := func(name, contents string) string {
			switch (seed + len(name) + len(contents)) % 3 {
			case 0:
				return contents + "more"
			case 1:
				return contents[:len(contents)/2]
			}
			return contents
		}
		got := must.Get(rewrite(t, a, change))(t)
		if other := build(func(i int) string {
			return change(want[i].name, want[i].contents)
		}); !bytes.Equal([]byte(got), []byte(other)) {
			t.Errorf("written again it is\n%q\nand this was expected\n%q", got, other)
		}
	})
}
