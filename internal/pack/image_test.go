package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

type object = map[string]any

// A layout is an image layout that a test makes, by the names of its files.
type layout map[string][]byte

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// blob adds a blob, and returns its descriptor.
func (l layout) blob(typ string, b []byte) object {
	d := digestOf(b)
	l["blobs/"+strings.Replace(d, ":", "/", 1)] = b
	return object{"mediaType": typ, "digest": d, "size": len(b)}
}

const ociType = "application/vnd.oci.image."

// image adds an image of tars, each compressed in another way, and returns its descriptor.
func (l layout) image(t *testing.T, arch string, layers ...[]byte) object {
	t.Helper()
	return l.compressed(t, arch, 3, layers...)
}

// compressed is image with the first ways only: gzip, zstd, none.
func (l layout) compressed(t *testing.T, arch string, ways int, layers ...[]byte) object {
	t.Helper()
	var diffs []string
	described := []object{}
	for i, b := range layers {
		diffs = append(diffs, digestOf(b))
		switch i % ways {
		case 0:
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			w.Write(b)
			w.Close()
			described = append(described, l.blob(ociType+"layer.v1.tar+gzip", z.Bytes()))
		case 1:
			w, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			described = append(described, l.blob(ociType+"layer.v1.tar+zstd", w.EncodeAll(b, nil)))
		default:
			described = append(described, l.blob(ociType+"layer.v1.tar", b))
		}
	}
	config := l.blob(ociType+"config.v1+json",
		encoded(t, object{"os": "linux", "architecture": arch, "rootfs": object{"type": "layers", "diff_ids": diffs}}))
	m := l.blob(ociType+"manifest.v1+json",
		encoded(t, object{"schemaVersion": 2, "mediaType": ociType + "manifest.v1+json", "config": config,
			"layers": described}))
	m["platform"] = object{"os": "linux", "architecture": arch}
	return m
}

// index finishes the layout.
func (l layout) index(t *testing.T, manifests ...object) {
	t.Helper()
	l["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)
	l["index.json"] = encoded(t, object{"schemaVersion": 2, "manifests": manifests})
}

// folder writes the layout to a folder.
func (l layout) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range l {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), b)
	}
	return dir
}

// forms returns the layout as a folder, as a tar, and as a compressed one.
func (l layout) forms(t *testing.T) map[string]string {
	t.Helper()
	dir, out := l.folder(t), t.TempDir()
	forms := map[string]string{"folder": dir, "tar": filepath.Join(out, "i.tar"),
		"tar.gz": filepath.Join(out, "i.tar.gz")}
	run(t, dir, "tar", "-cf", forms["tar"], ".")
	run(t, dir, "tar", "-czf", forms["tar.gz"], ".")
	return forms
}

func dir(name string) tarMember { return linked(tar.TypeDir, name+"/", "") }

// TestLayers has what one layer can do to those below. What is expected is by the OCI image layer specification,
// "Applying Changesets" and "Whiteouts"; TestUmoci compares the same with a program.
var layersTests = []struct {
	name   string
	layers [][]tarMember
	want   map[string]string
}{
	{"replaced and added", [][]tarMember{
		{dir("bin"), regular("bin/a", "a1"), regular("bin/b", "b1")},
		{regular("bin/a", "a2"), regular("bin/c", "c2")},
		{regular("bin/c", "c3")},
	}, map[string]string{"bin/a": "a2", "bin/b": "b1", "bin/c": "c3"}},
	{"removed", [][]tarMember{
		{regular("a", "a"), dir("d"), regular("d/x", "x"), dir("e"), regular("e/x", "x"), regular("e/y", "y")},
		{regular(".wh.a", ""), regular(".wh.d", ""), regular("e/.wh.x", "")},
	}, map[string]string{"e/y": "y"}},
	{"removed, what was not there", [][]tarMember{
		{regular("a", "a")},
		{regular(".wh.b", ""), regular("d/.wh.x", ""), regular("a/.wh.x", "")},
	}, map[string]string{"a": "a"}},
	{"removed, and there again", [][]tarMember{
		{regular("a", "a1"), dir("d"), regular("d/x", "x1")},
		{regular(".wh.a", ""), regular(".wh.d", "")},
		{regular("a", "a3"), dir("d"), regular("d/y", "y3")},
	}, map[string]string{"a": "a3", "d/y": "y3"}},
	{"opaque, before and behind what is new", [][]tarMember{
		{dir("d"), regular("d/x", "x1"), dir("d/s"), regular("d/s/y", "y1"), dir("e"), regular("e/x", "x1")},
		{dir("d"), regular("d/.wh..wh..opq", ""), regular("d/n", "n2"), dir("e"), regular("e/n", "n2"),
			regular("e/.wh..wh..opq", "")},
	}, map[string]string{"d/n": "n2", "e/n": "n2"}},
	{"what AUFS needs", [][]tarMember{
		{regular("a", "a")},
		{regular(".wh..wh.aufs", ""), dir(".wh..wh.plnk"), regular(".wh..wh.plnk/1.2", "x")},
	}, map[string]string{"a": "a"}},
	{"a file for a folder, a folder for a file, links for files", [][]tarMember{
		{dir("d"), regular("d/x", "x"), regular("f", "f"), regular("g", "g"), regular("h", "h")},
		{regular("d", "file"), dir("f"), regular("f/y", "y"), linked(tar.TypeSymlink, "g", "h")},
	}, map[string]string{"d": "file", "f/y": "y", "h": "h"}},
	{"through a symbolic link below", [][]tarMember{
		{dir("usr"), dir("usr/lib"), linked(tar.TypeSymlink, "lib", "usr/lib"),
			linked(tar.TypeSymlink, "lib64", "/lib"), regular("usr/lib/x", "x1"), regular("usr/lib/y", "y1")},
		{regular("lib/x", "x2"), regular("lib64/z", "z2"), regular("lib64/.wh.y", "")},
	}, map[string]string{"usr/lib/x": "x2", "usr/lib/z": "z2"}},
	{"a folder for a symbolic link", [][]tarMember{
		{dir("usr"), dir("usr/lib"), linked(tar.TypeSymlink, "lib", "usr/lib"), regular("usr/lib/x", "x1")},
		{dir("lib"), regular("lib/x", "x2")},
	}, map[string]string{"usr/lib/x": "x1", "lib/x": "x2"}},
	{"hard links", [][]tarMember{
		{regular("b", "b1"), linked(tar.TypeLink, "a", "b"), linked(tar.TypeLink, "c", "b"), regular("k", "k1"),
			linked(tar.TypeLink, "l", "k")},
		{regular(".wh.a", ""), regular("b", "b2"), regular(".wh.k", ""), linked(tar.TypeLink, "m", "c")},
	}, map[string]string{"b": "b2", "c": "b1", "l": "k1"}},
}

func TestLayers(t *testing.T) {
	for _, tt := range layersTests {
		t.Run(tt.name, func(t *testing.T) {
			l := make(layout)
			var layers [][]byte
			for _, members := range tt.layers {
				layers = append(layers, tarOf(t, members...))
			}
			l.index(t, l.image(t, "amd64", layers...))
			for form, name := range l.forms(t) {
				t.Run(form, func(t *testing.T) { same(t, name, tt.want) })
			}
		})
	}
}

// TestUmoci has umoci unpack the same images.
func TestUmoci(t *testing.T) {
	for _, tt := range layersTests {
		if strings.Contains(tt.name, "AUFS") {
			continue // umoci unpacks that; containerd and Docker do not
		}
		t.Run(tt.name, func(t *testing.T) {
			l := make(layout)
			var layers [][]byte
			for _, members := range tt.layers {
				layers = append(layers, tarOf(t, members...))
			}
			m := l.compressed(t, "amd64", 1, layers...) // it does not know zstd
			m["annotations"] = object{"org.opencontainers.image.ref.name": "tag"}
			l.index(t, m)
			name := l.folder(t)
			out := filepath.Join(t.TempDir(), "bundle")
			args := []string{"unpack", "--image", name + ":tag", out}
			if os.Getuid() != 0 {
				args = append([]string{"unpack", "--rootless"}, args[1:]...)
			}
			run(t, name, "umoci", args...)
			same(t, name, treeOf(t, filepath.Join(out, "rootfs")))
		})
	}
}

// TestImages has several images in a layout, some of which share layers.
func TestImages(t *testing.T) {
	base := tarOf(t, regular("a", "base"), regular("b", "base"))
	top := tarOf(t, regular("b", "top"))
	arm := tarOf(t, regular("a", "arm"))

	l := make(layout)
	one, two := l.image(t, "amd64", base), l.image(t, "arm64", arm)
	two["platform"].(object)["variant"] = "v8"
	// What BuildKit adds, and an artifact that is no image.
	attest := l.image(t, "amd64", tarOf(t, regular("c", "none")))
	attest["platform"] = object{"os": "unknown", "architecture": "unknown"}
	artifact := l.blob(ociType+"manifest.v1+json",
		encoded(t, object{"schemaVersion": 2, "config": l.blob("application/vnd.oci.empty.v1+json", []byte("{}")),
			"layers": []object{}}))
	// An index in the index, as registries have it, and a platform that was not fetched.
	absent := object{"mediaType": ociType + "manifest.v1+json", "digest": digestOf([]byte("?")), "size": 1,
		"platform": object{"os": "linux", "architecture": "s390x"}}
	inner := l.blob(ociType+"index.v1+json",
		encoded(t, object{"schemaVersion": 2, "manifests": []object{one, two, attest, absent}}))
	l.index(t, inner, one, artifact)
	want := map[string]string{
		"linux/amd64!a": "base", "linux/amd64!b": "base", "linux/arm64/v8!a": "arm",
		"linux/s390x": "the manifest blobs/" + strings.Replace(digestOf([]byte("?")), ":", "/", 1) + " is missing",
	}
	for form, name := range l.forms(t) {
		t.Run("platforms "+form, func(t *testing.T) { same(t, name, want) })
	}

	l = make(layout)
	one, two = l.image(t, "amd64", base), l.image(t, "amd64", base, top)
	l.index(t, one, two)
	first, second := one["digest"].(string), two["digest"].(string)
	want = map[string]string{
		"linux/amd64!" + first + "!a": "base", "linux/amd64!" + first + "!b": "base",
		"linux/amd64!" + second + "!a": "base", "linux/amd64!" + second + "!b": "top",
	}
	for form, name := range l.forms(t) {
		t.Run("no tags "+form, func(t *testing.T) { same(t, name, want) })
	}

	l = make(layout)
	one, two = l.image(t, "amd64", base), l.image(t, "amd64", base, top)
	one["annotations"] = object{"org.opencontainers.image.ref.name": "v1"}
	two["annotations"] = object{"org.opencontainers.image.ref.name": "v2"}
	l.index(t, one, two)
	want = map[string]string{"v1!linux/amd64!a": "base", "v1!linux/amd64!b": "base", "v2!linux/amd64!a": "base",
		"v2!linux/amd64!b": "top"}
	for form, name := range l.forms(t) {
		t.Run("tags "+form, func(t *testing.T) { same(t, name, want) })
	}
}

// TestDocker has what "docker save" wrote before it wrote image layouts: a folder for each layer, where one that is
// there already is a link.
func TestDocker(t *testing.T) {
	base, top := tarOf(t, regular("a", "base"), regular("b", "base")),
		tarOf(t, regular("b", "top"), regular(".wh.a", ""))
	config := func(layers ...[]byte) string {
		var diffs []string
		for _, b := range layers {
			diffs = append(diffs, digestOf(b))
		}
		return string(encoded(t, object{"os": "linux", "architecture": "amd64",
			"rootfs": object{"type": "layers", "diff_ids": diffs}}))
	}
	manifest := func(images ...object) string { return string(encoded(t, images)) }
	one := object{"Config": "c1.json", "RepoTags": []string{"i:1"}, "Layers": []string{"l1/layer.tar"}}
	two := object{"Config": "c2.json", "RepoTags": []string{"i:2"}, "Layers": []string{"l2/layer.tar", "l3/layer.tar"}}
	files := []tarMember{
		regular("l1/layer.tar", string(base)), linked(tar.TypeSymlink, "l2/layer.tar", "../l1/layer.tar"),
		regular("l3/layer.tar", string(top)),
		regular("c1.json", config(base)), regular("c2.json", config(base, top)),
	}
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, "two.tar"),
		tarOf(t, append(files, regular("manifest.json", manifest(one, two)))...))
	same(t, name, map[string]string{"i:1!linux/amd64!a": "base", "i:1!linux/amd64!b": "base",
		"i:2!linux/amd64!b": "top"})
	name = write(t, filepath.Join(dir, "one.tar"), tarOf(t, append(files, regular("manifest.json", manifest(two)))...))
	same(t, name, map[string]string{"b": "top"})
	run(t, dir, "gzip", "one.tar")
	same(t, name+".gz", map[string]string{"b": "top"})
	name = write(t, filepath.Join(dir, "wrong.tar"), tarOf(t, append(files, regular("c3.json", config(base, base)),
		regular("manifest.json", manifest(object{"Config": "c3.json", "Layers": two["Layers"]})))...))
	if _, err := contents(name); err == nil || !strings.Contains(err.Error(), "l3/layer.tar: ") ||
		!strings.Contains(err.Error(), "the digest is "+digestOf(top)+", not "+digestOf(base)) {
		t.Errorf("a layer of another digest: %v", err)
	}
	// A link of the other kind.
	name = write(t, filepath.Join(dir, "hard.tar"),
		tarOf(t, append(files, linked(tar.TypeLink, "l4/layer.tar", "l1/layer.tar"),
			regular("manifest.json", manifest(object{"Config": "c1.json", "Layers": []string{"l4/layer.tar"}})))...))
	same(t, name, map[string]string{"a": "base", "b": "base"})
	for _, tt := range []struct {
		name    string
		members []tarMember
		want    string
	}{
		{"no configuration", []tarMember{regular("manifest.json", manifest(object{"Config": "c9.json"}))},
			"c9.json: file does not exist"},
		{"a configuration that is none",
			[]tarMember{regular("c9.json", "text"), regular("manifest.json", manifest(object{"Config": "c9.json"}))},
			"c9.json: invalid character"},
		{"a damaged configuration", []tarMember{regular("c9.json", config(base)[:50]),
			regular("manifest.json", manifest(object{"Config": "c9.json", "Layers": one["Layers"]}))},
			"c9.json: unexpected end of JSON input"},
		{"links in a circle", []tarMember{linked(tar.TypeSymlink, "l5", "l5"),
			regular("manifest.json", manifest(object{"Config": "c1.json", "Layers": []string{"l5"}}))},
			"l5 leads through more than 255 links"},
	} {
		name := write(t, filepath.Join(dir, "wrong.tar"), tarOf(t, append(files, tt.members...)...))
		if _, err := contents(name); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
	// A web application's manifest.json makes no image.
	name = write(t, filepath.Join(dir, "web.tar"), tarOf(t, regular("manifest.json", `[{"name": "app"}]`),
		regular("index.json", "{}")))
	same(t, name, map[string]string{"manifest.json": `[{"name": "app"}]`, "index.json": "{}"})
}
