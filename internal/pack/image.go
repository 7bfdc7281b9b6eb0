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

// A store opens a part of images by its name.
type store func(name string) (r io.ReadCloser, size int64, err error)

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
	var out []File
	for i, label := range labels(images) {
		p := &images[i]
		if p.err != nil {
			out = append(out, File{label, -1, p.err})
			continue
		}
		t := &tree{newDir(), r.budget}
		for _, l := range p.layers {
			if err := r.ctx.Err(); err != nil { // many images may have large layers in common
				return nil, err
			}
			entries, ok := layers[l.file]
			if !ok {
				if entries, err = r.layer(in, l); err != nil {
					return nil, err
				}
				layers[l.file] = entries
			}
			if err := cmp.Or(r.budget.Spend(costNode, uint64(len(entries))), t.add(entries)); err != nil {
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
	raw, _, err := in(l.file)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	if l.digest == "" {
		return r.part(l.file, raw)
	}
	sum, err := l.digest.hash()
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
	f := finder{in: in, budget: r.budget, seen: make(map[string]bool)}
	var index ociManifest
	err := f.parse(indexFile, "", &index)
	if err == nil {
		err = f.index(indexFile, index.Manifests, "", 0)
	} else if missing(err) {
		err = f.docker()
	}
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(f.found, func(p image) bool { return p.err == nil }):
		return f.found, nil
	case len(f.found) > 0:
		return nil, f.found[0].err
	}
	return nil, errors.New("no manifest describes an image")
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// A finder finds the images in a store.
type finder struct {
	in     store
	budget *elffile.Budget
	// What was seen is not read again: indexes that refer to each other many times would have to be read as often as
	// the product of that.
	seen  map[string]bool
	found []image
}

// isNew reports whether an image or an index is seen for the first time.
func (f *finder) isNew(id string) bool {
	was := f.seen[id]
	f.seen[id] = true
	return !was
}

// parse reads a description into a value, and compares its digest unless that is "". It takes from the budget, because
// many images may share a large description.
func (f *finder) parse(name string, d digest, to any) error {
	r, size, err := f.in(name)
	if err != nil {
		return err
	}
	defer r.Close()
	if size > maxText {
		return fmt.Errorf("%s has %d bytes; descriptions of images may have %d", name, size, maxText)
	}
	if err := f.budget.Spend(costText, uint64(size)); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxText))
	if err == nil && d != "" {
		err = d.check(b)
	}
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, early(err))
	}
	return nil
}

// blob reads a blob into a value.
func (f *finder) blob(d digest, to any) error {
	if _, err := d.hash(); err != nil {
		return err
	}
	return f.parse(d.file(), d, to)
}

// index adds the images of an index; ref is what the one around it calls it.
func (f *finder) index(name string, manifests []descriptor, ref string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d indexes in each other", name, maxDepth)
	}
	for i := range manifests {
		if err := f.manifest(&manifests[i], ref, depth); err != nil {
			return err
		}
	}
	return nil
}

// manifest adds the image, or the images, of a descriptor.
func (f *finder) manifest(d *descriptor, ref string, depth int) error {
	ref = cmp.Or(d.Annotations["io.containerd.image.name"], d.Annotations["org.opencontainers.image.ref.name"], ref)
	p := image{id: string(d.Digest), ref: ref, platform: d.Platform.String()}
	if p.platform == "unknown/unknown" { // what BuildKit says of how an image was made
		return nil
	}
	if !f.isNew(p.id) {
		return nil
	}
	name := d.Digest.file()
	var m ociManifest
	err := f.blob(d.Digest, &m)
	switch {
	case missing(err):
		p.err = fmt.Errorf("the manifest %s is missing", name)
		f.found = append(f.found, p)
		return nil
	case err != nil:
		return err
	case d.MediaType == typeIndex, d.MediaType == typeDockerList:
		return f.index(name, m.Manifests, ref, depth+1)
	case m.Config.MediaType != typeConfig && m.Config.MediaType != typeDockerConfig:
		return nil // an artifact of another kind
	}
	if p.platform == "" {
		var c ociConfig
		if err := f.blob(m.Config.Digest, &c); err == nil { // which is only for a label
			p.platform = c.platform.String()
		}
	}
	for _, l := range m.Layers {
		if _, err := l.Digest.hash(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.layers = append(p.layers, layer{file: l.Digest.file(), digest: l.Digest})
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
	if err := f.parse(dockerFile, "", &images); err != nil {
		return err
	}
	for _, saved := range images {
		if !f.isNew(saved.Config) {
			continue
		}
		var c ociConfig
		if err := f.parse(saved.Config, "", &c); err != nil {
			return err
		}
		p := image{id: saved.Config, platform: c.platform.String()}
		if len(saved.RepoTags) > 0 {
			p.ref = saved.RepoTags[0]
		}
		for i, name := range saved.Layers {
			l := layer{file: name, unpacked: true}
			if diffs := c.RootFS.DiffIDs; len(diffs) == len(saved.Layers) {
				if _, err := diffs[i].hash(); err == nil {
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

// isSaved reports whether a tar is what "docker save" writes, and not of a program with a file of that name.
func (t *layoutTar) isSaved() bool {
	var images []saved
	f := &finder{in: t.open}
	return f.parse(dockerFile, "", &images) == nil && len(images) > 0 && images[0].Config != ""
}

// size returns the size of all files.
func (d layoutDir) size() (int64, error) {
	var size int64
	err := filepath.WalkDir(string(d), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
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
