package pack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

const (
	indexFile  = "index.json"    // of an image layout
	dockerFile = "manifest.json" // of what "docker save" writes
	blobDir    = "blobs/"
)

// Bounds on images; the budget bounds their number and that of their layers.
const (
	maxDepth = 8       // of indexes in indexes
	maxText  = 4 << 20 // bytes of a description
)

// A store has the parts of images by their names.
type store interface {
	open(name string) (r io.ReadCloser, size int64, err error)
}

// An image is a list of layers.
type image struct {
	id       string // equal for equal images
	ref      string // its name, or ""
	platform string // such as linux/amd64, or ""
	layers   []layer
	err      error // a part of the image is missing
}

// A layer is a part of images.
type layer struct {
	file     string
	digest   digest // or ""
	unpacked bool   // the digest is that of the unpacked layer
}

// image reads the images in a store. Each layer is read once.
func (r *reader) image(in store) ([]File, error) {
	images, err := r.find(in)
	if err != nil {
		return nil, err
	}
	layers := make(map[string][]entry)
	for i := range images {
		for _, l := range images[i].layers {
			if _, ok := layers[l.file]; ok {
				continue
			}
			if layers[l.file], err = r.layer(in, l); err != nil {
				return nil, err
			}
		}
	}
	var out []File
	for i, label := range labels(images) {
		p := &images[i]
		if p.err != nil {
			out = append(out, File{label, -1, p.err})
			continue
		}
		t := newTree(r.budget)
		for _, l := range p.layers {
			if err := r.ctx.Err(); err != nil { // many images may have large layers in common
				return nil, err
			}
			if err := cmp.Or(r.budget.Spend(costNode, uint64(len(layers[l.file]))), t.add(layers[l.file])); err != nil {
				return nil, fmt.Errorf("%s: %w", l.file, err)
			}
		}
		files, err := t.files()
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if label != "" {
				f.Name = label + "!" + f.Name
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// layer reads a layer, and compares its digest.
func (r *reader) layer(in store, l layer) ([]entry, error) {
	raw, _, err := in.open(l.file)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	if l.digest == "" {
		return r.part(l.file, raw)
	}
	_, _, sum, err := l.digest.split()
	if err != nil {
		return nil, err
	}
	packed := io.Reader(raw)
	if !l.unpacked {
		packed = io.TeeReader(raw, sum)
	}
	s, err := r.unpack(l.file, packed)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	plain := io.Reader(s)
	if l.unpacked {
		plain = io.TeeReader(s, sum)
	}
	entries, err := r.list(s, plain)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil { // decompressors may leave something
		return nil, s.error("", err)
	}
	if err := l.digest.compare(sum); err != nil {
		return nil, s.error("", err)
	}
	return entries, nil
}

// labels returns the prefix of the names of the files of each image: nothing for a single image; the platform; or, if
// images have the same platform, also their names.
func labels(images []image) []string {
	out := make([]string, len(images))
	if len(images) == 1 && images[0].err == nil {
		return out
	}
	for _, label := range []func(*image) string{
		func(p *image) string { return p.platform },
		func(p *image) string { return p.ref + "!" + p.platform },
		func(p *image) string { return p.ref + "!" + p.platform + "!" + p.id },
	} {
		taken := make(map[string]bool)
		for i := range images {
			out[i] = strings.Trim(label(&images[i]), "!")
			taken[out[i]] = true
		}
		if len(taken) == len(images) && !taken[""] {
			break
		}
	}
	return out
}

// find returns the images in a store. There is at least one that can be read.
func (r *reader) find(in store) ([]image, error) {
	f := finder{in: in, budget: r.budget, followed: make(map[reference]bool)}
	var index ociIndex
	err := f.parse(indexFile, &index)
	if err == nil {
		err = f.index(indexFile, &index, "", 0)
	} else if missing(err) {
		err = f.docker()
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	all := slices.DeleteFunc(f.found, func(p image) bool {
		was := seen[p.id]
		seen[p.id] = true
		return was
	})
	switch {
	case slices.ContainsFunc(all, func(p image) bool { return p.err == nil }):
		return all, nil
	case len(all) > 0:
		return nil, all[0].err
	}
	return nil, errors.New("no manifest is that of an image")
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// A finder finds the images in a store.
type finder struct {
	in       store
	budget   *elffile.Budget
	followed map[reference]bool
	found    []image
}

// A reference is a blob and how it is read. Each is followed once, because indexes that refer to each other many
// times would have to be read as often as the product of that.
type reference struct {
	digest digest
	index  bool
}

// read reads a description. It takes from the budget, because many images may share a large one.
func (f *finder) read(name string) ([]byte, error) {
	r, size, err := f.in.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > maxText {
		return nil, fmt.Errorf("%s has %d bytes; descriptions of images may have %d", name, size, maxText)
	}
	if err := f.budget.Spend(costText, uint64(size)); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxText))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, early(err))
	}
	return b, nil
}

// parse reads a description into a value.
func (f *finder) parse(name string, to any) error {
	b, err := f.read(name)
	if err != nil {
		return err
	}
	return decode(name, b, to)
}

func decode(name string, b []byte, to any) error {
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// blob returns where a blob is.
func blob(d digest) (string, error) {
	algorithm, sum, _, err := d.split()
	return blobDir + algorithm + "/" + sum, err
}

// blob reads the blob of a descriptor into a value, and returns its name. The digest is compared.
func (f *finder) blob(d *descriptor, to any) (string, error) {
	name, err := blob(d.Digest)
	if err != nil {
		return "", err
	}
	b, err := f.read(name)
	if err != nil {
		return name, err
	}
	_, _, h, _ := d.Digest.split()
	h.Write(b)
	if err := d.Digest.compare(h); err != nil {
		return name, fmt.Errorf("%s: %w", name, err)
	}
	return name, decode(name, b, to)
}

// index adds the images of an index; ref is what the one around it calls it.
func (f *finder) index(name string, index *ociIndex, ref string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d indexes in each other", name, maxDepth)
	}
	for i := range index.Manifests {
		if err := f.manifest(&index.Manifests[i], ref, depth); err != nil {
			return err
		}
	}
	return nil
}

// manifest adds the image, or the images, of a descriptor.
func (f *finder) manifest(d *descriptor, ref string, depth int) error {
	ref = cmp.Or(d.Annotations["io.containerd.image.name"], d.Annotations["org.opencontainers.image.ref.name"], ref)
	p := image{id: string(d.Digest), ref: ref, platform: d.Platform.String()}
	if p.platform == "unknown/unknown" {
		return nil // what BuildKit says of how an image was made
	}
	to := reference{d.Digest, d.MediaType == typeIndex || d.MediaType == typeDockerList}
	if f.followed[to] {
		return nil
	}
	f.followed[to] = true
	var m struct { // an index, or the manifest of an image
		ociIndex
		ociManifest
	}
	name, err := f.blob(d, &m)
	switch {
	case missing(err):
		p.err = fmt.Errorf("the manifest %s is missing", name)
		f.found = append(f.found, p)
		return nil
	case err != nil:
		return err
	case to.index:
		return f.index(name, &m.ociIndex, ref, depth+1)
	case m.Config.MediaType != typeConfig && m.Config.MediaType != typeDockerConfig:
		return nil // an artifact of another kind
	}
	if p.platform == "" {
		var c ociConfig
		if _, err := f.blob(&m.Config, &c); err == nil { // which is only for a label
			p.platform = c.platform.String()
		}
	}
	for _, l := range m.Layers {
		file, err := blob(l.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.layers = append(p.layers, layer{file: file, digest: l.Digest})
	}
	f.found = append(f.found, p)
	return nil
}

// A saved is an image in what "docker save" writes.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// docker adds the images that "docker save" has written.
func (f *finder) docker() error {
	var images []saved
	if err := f.parse(dockerFile, &images); err != nil {
		return err
	}
	for _, saved := range images {
		var c ociConfig
		if err := f.parse(saved.Config, &c); err != nil {
			return err
		}
		p := image{id: saved.Config, platform: c.platform.String()}
		if len(saved.RepoTags) > 0 {
			p.ref = saved.RepoTags[0]
		}
		for i, name := range saved.Layers {
			l := layer{file: name, unpacked: true}
			if diffs := c.RootFS.DiffIDs; len(diffs) == len(saved.Layers) {
				if _, _, _, err := diffs[i].split(); err == nil {
					l.digest = diffs[i]
				}
			}
			p.layers = append(p.layers, l)
		}
		f.found = append(f.found, p)
	}
	return nil
}

// A layoutDir is a directory with an image layout.
type layoutDir string

func (d layoutDir) open(name string) (io.ReadCloser, int64, error) {
	f, size, err := open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, early(err))
	}
	return f, size, nil
}

// A layoutTar is a tar with images.
type layoutTar struct {
	io.ReaderAt
	entries map[string]entry
}

func newLayoutTar(r io.ReaderAt, entries []entry) *layoutTar {
	t := &layoutTar{r, make(map[string]entry, len(entries))}
	for _, e := range entries {
		t.entries[e.name] = e
	}
	return t
}

// open follows links: in older archives, layers that are the same are links.
func (t *layoutTar) open(name string) (io.ReadCloser, int64, error) {
	at := Clean(name)
	for range maxLinks {
		e, ok := t.entries[at]
		switch {
		case ok && e.typ == isLink:
			at = e.link
		case ok && e.typ == isSymlink:
			at = Clean(path.Join(path.Dir(at), e.link))
		case ok && e.typ == isFile:
			return io.NopCloser(io.NewSectionReader(t, e.off, e.size)), e.size, nil
		default:
			return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
	}
	return nil, 0, fmt.Errorf("%s leads through more than %d links", name, maxLinks)
}

// isImage reports whether a tar has images.
func (t *layoutTar) isImage() bool {
	if _, ok := t.entries[layoutFile]; ok {
		return true
	}
	var images []saved
	f := &finder{in: t}
	return f.parse(dockerFile, &images) == nil && len(images) > 0 && images[0].Config != ""
}

// DirSize returns the size of all files in an image layout.
func DirSize(name string) (int64, error) {
	var size int64
	err := filepath.WalkDir(name, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
