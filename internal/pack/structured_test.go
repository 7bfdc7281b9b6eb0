package pack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/rpmtest"
)

// A step is something that a choice puts into a package.
type step struct {
	kind     int // one of the numbers below
	name, to string
	contents string
}

const (
	putFile = iota
	putLink // to a file that is there
	putSymlink
	putFolder
	putDevice
	removed // of a layer: whiteout
	emptied // opaque
)

// steps makes a list of them, and of files the names without links, folders and the rest: a model of what they do,
// which knows nothing of how packages are written. Names are those of two folders, so that much is replaced.
func steps(s *generate.Source, n int, layer bool, there map[string]string) []step {
	var out []step
	folders := []string{"", "usr/", "usr/lib/"}
	whole := map[string]bool{} // put by this layer
	for range n {
		p := step{kind: s.N(5), name: folders[s.N(3)] + string(rune('a'+s.N(6)))}
		if layer {
			p.kind = s.N(7)
		}
		switch p.kind {
		case putFile:
			p.contents = string(s.Bytes(s.N(3 * blockSize)))
			there[p.name] = p.contents
		case putLink:
			p.to = folders[s.N(3)] + string(rune('a'+s.N(6)))
			if _, ok := there[p.to]; !ok || layer && !whole[p.to] || p.to == p.name {
				continue
			}
			there[p.name] = there[p.to] // the files have different contents here, or it makes no difference
		case putSymlink, putDevice:
			p.to = "nowhere"
			delete(there, p.name)
		case putFolder:
			delete(there, p.name)
		case removed, emptied:
			if len(whole) > 0 {
				continue // they come first here; image_test.go has other orders
			}
			if p.kind == removed {
				delete(there, p.name)
				break
			}
			p.name = folders[1+s.N(2)]
			for name := range there {
				if strings.HasPrefix(name, p.name) {
					delete(there, name)
				}
			}
		}
		if p.kind < removed {
			whole[p.name] = true
		}
		out = append(out, p)
	}
	return out
}

// tarMember returns what a step is in a tar.
func (p *step) tarMember(s *generate.Source) tarMember {
	dir, base := filepath.Split(p.name)
	switch p.kind {
	case putFile:
		m := regular(p.name, p.contents)
		m.Format = []tar.Format{tar.FormatUSTAR, tar.FormatGNU, tar.FormatPAX}[s.N(3)]
		return m
	case putLink:
		return linked(tar.TypeLink, "./"+p.name, p.to)
	case putSymlink:
		return linked(tar.TypeSymlink, p.name, p.to)
	case putFolder:
		return linked(tar.TypeDir, p.name+"/", "")
	case putDevice:
		return linked(tar.TypeChar, p.name, "")
	case removed:
		return regular(dir+whiteout+base, "")
	}
	return regular(p.name+opaque, "")
}

// FuzzStructured makes a package of the bytes: files with contents, names that come again, links, folders and devices,
// in a tar, a .deb, an .rpm or the layers of an image, and compressed or not. What is read is what a simple model says.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(80) {
		f.Add(generate.Seeded(seed, 200+20*int(seed)))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 1<<14 {
			return
		}
		s := generate.From(choices)
		pack := func(b []byte) []byte {
			switch s.N(3) {
			case 0:
				return gzipped9(b)
			case 1:
				w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
				return w.EncodeAll(b, nil)
			}
			return b
		}
		want := make(map[string]string)
		tarred := func(n int, layer bool) []byte {
			var members []tarMember
			for _, p := range steps(s, n, layer, want) {
				members = append(members, p.tarMember(s))
			}
			return tarOf(t, members...)
		}
		name := filepath.Join(t.TempDir(), "p")
		switch s.N(4) {
		case 0:
			// Without members it is not known for a tar.
			want["first"] = "f"
			b := tarOf(t, regular("first", "f"))
			write(t, name, pack(append(b[:1024], tarred(s.N(20), false)...)))
		case 1:
			write(t, name, debOf("data.tar.any", pack(tarred(s.N(20), false))))
		case 2:
			var payload []byte
			inode := 0
			for _, p := range steps(s, s.N(20), false, want) {
				inode++
				mode := []int{0o100644, 0, 0o120777, 0o040755, 0o020600}[p.kind]
				switch p.kind {
				case putLink: // cpio has no links to what is there: only the contents again
					payload = append(payload, rpmtest.Newc("./"+p.name, inode, 0o100644, 1, want[p.name])...)
				case putSymlink:
					payload = append(payload, rpmtest.Newc("./"+p.name, inode, mode, 1, p.to)...)
				default:
					payload = append(payload, rpmtest.Newc("./"+p.name, inode, mode, 1, p.contents)...)
				}
			}
			if payload == nil && len(want) > 0 {
				t.Fatal("no payload")
			}
			// A link that was made of what was replaced later has other contents.
			want = replayed(payload)
			write(t, name, rpmtest.Package(pack(append(payload, rpmtest.Trailer()...)),
				rpmtest.Tag{Number: rpm.TagPayloadFormat, Value: "cpio"}))
		default:
			l := make(layout)
			var layers [][]byte
			// Folders are there, so that what is removed is nothing but files.
			layers = append(layers, tarOf(t, dir("usr"), dir("usr/lib")))
			for range 1 + s.N(4) {
				layers = append(layers, tarred(s.N(12), true))
			}
			l.index(t, l.image(t, "amd64", layers...))
			name = l.folder(t)
		}
		got, err := contents(name)
		if err != nil {
			t.Fatal(err)
		}
		// Links are files of several names, of which only the first counts: all that is there has to be right, and all
		// contents have to be there.
		have := make(map[string]bool)
		for n, text := range got {
			have[text] = true
			if w, ok := want[n]; !ok || w != text {
				t.Errorf("%s is %.20q; want %.20q (%v)", n, text, w, ok)
			}
		}
		for n, text := range want {
			if !have[text] {
				t.Errorf("%s with %.20q is missing", n, text)
			}
		}
	})
}

// replayed says what a cpio archive of newc leaves, by its own members in their order.
func replayed(payload []byte) map[string]string {
	out := make(map[string]string)
	for len(payload) > 0 {
		var f [13]int
		for i := range f {
			fmt.Sscanf(string(payload[6+8*i:][:8]), "%x", &f[i])
		}
		name := string(payload[110+2 : 110+f[11]-1])
		begin := (110 + f[11] + 3) &^ 3
		delete(out, name)
		if f[1]&0o170000 == 0o100000 {
			out[name] = string(payload[begin : begin+f[6]])
		}
		payload = payload[(begin+f[6]+3)&^3:]
	}
	return out
}

// FuzzEach reads anything within small limits: an error, or files.
func FuzzEach(f *testing.F) {
	plain := tarOf(f, regular("usr/bin/a", "contents"), linked(tar.TypeLink, "b", "usr/bin/a"),
		linked(tar.TypeSymlink, "c", "b"), dir("d"))
	w, _ := zstd.NewWriter(nil)
	for _, b := range [][]byte{
		plain, gzipped9(plain), w.EncodeAll(plain, nil), debOf("data.tar", plain),
		debOf("data.tar.gz", gzipped9(plain)),
		rpmtest.Package(rpmtest.Payload(), rpmtest.Tags()...),
		rpmtest.Package(bytes.Join([][]byte{rpmtest.Newc("./a", 1, 0o100755, 2, ""),
			rpmtest.Newc("./b", 1, 0o100755, 2, "x"), rpmtest.Trailer()}, nil)),
		tarOf(f, regular("oci-layout", "{}"), regular("index.json", `{"manifests": []}`)),
		tarOf(f, regular("l.tar", string(plain)), regular("c.json", "{}"),
			regular("manifest.json", `[{"Config": "c.json", "Layers": ["l.tar"]}]`)),
	} {
		f.Add(b)
	}
	limited(f, 2_000_000_000)
	f.Fuzz(func(t *testing.T, b []byte) {
		name := write(t, filepath.Join(t.TempDir(), "p"), b)
		is, err := Is(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := contents(name)
		if !is && err == nil {
			t.Errorf("no package, with %d files", len(got))
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}
