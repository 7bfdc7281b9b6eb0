package pack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
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

// Bounds on images.
const (
	maxImages = 1000
	maxLayers = 1000 // of an image; container engines know 127
	maxDepth  = 8    // of indexes in indexes
)

// A store is where the parts of images are.
type store interface {
	real(name string) string // the name of the same file, if it has several
	description(name string) ([]byte, error)
	layers(names []string, fn func(name string, in io.Reader) error) error
}

// A described store takes descriptions from a budget: many images may share a large one.
type described struct {
	store
	budget *elffile.Budget
}

func (d *described) description(name string) ([]byte, error) {
	b, err := d.store.description(name)
	return b, cmp.Or(err, d.budget.Spend(costText, uint64(len(b))))
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
	unpacked bool   // the digest is that of what it unpacks to
}

// image reads the images in a store. Each layer is read once.
func (r *reader) image(in store) ([]File, error) {
	images, err := find(&described{in, r.budget})
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]layer)
	var names []string
	for _, p := range images {
		for _, l := range p.layers {
			if _, ok := wanted[l.file]; !ok {
				names = append(names, l.file)
			}
			wanted[l.file] = l
		}
	}
	layers := make(map[string][]entry)
	err = in.layers(names, func(name string, raw io.Reader) error {
		entries, err := r.verified(wanted[name], raw)
		layers[name] = entries
		return err
	})
	if err != nil {
		return nil, err
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

// verified reads a layer, and compares its digest.
func (r *reader) verified(l layer, raw io.Reader) ([]entry, error) {
	if l.digest == "" {
		return r.part(l.file, raw)
	}
	_, _, sum, err := l.digest.split()
	if err != nil {
		return nil, err
	}
	if !l.unpacked {
		raw = &summed{raw, sum}
	}
	s, err := r.unpack(l.file, raw)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	in := io.Reader(s)
	if l.unpacked {
		in = &summed{s, sum}
	}
	entries, err := r.list(s, in)
	if err != nil {
		return nil, err
	}
	if !l.unpacked { // decompressors may leave something
		if _, err := io.Copy(io.Discard, raw); err != nil {
			return nil, s.error("", err)
		}
	}
	if err := l.digest.compare(sum); err != nil {
		return nil, s.error("", err)
	}
	return entries, nil
}

// A summed reader sums up what is read.
type summed struct {
	io.Reader
	sum hash.Hash
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.sum.Write(b[:n])
	return n, err
}

// labels returns the prefix of the names of the files of each image: nothing for a single image; the platform; or, if images have the
// same platform, also their names.
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
func find(in store) ([]image, error) {
	var all []image
	index, err := in.description(indexFile)
	if err == nil {
		f := finder{in: in, followed: make(map[reference]bool)}
		if err = f.index(indexFile, index, "", 0); err == nil {
			all = f.found
		}
	} else if missing(err) {
		all, err = docker(in)
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	all = slices.DeleteFunc(all, func(p image) bool {
		was := seen[p.id]
		seen[p.id] = true
		return was
	})
	for i := range all {
		if all[i].err == nil {
			return all, nil
		}
	}
	if len(all) > 0 {
		return nil, all[0].err
	}
	return nil, errors.New("no image: none of the manifests is that of one")
}

// few returns an error if an image has too many layers.
func few(name string, layers int) error {
	if layers > maxLayers {
		return fmt.Errorf("%s: an image of %d layers; at most %d are accepted", name, layers, maxLayers)
	}
	return nil
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// parse reads a description.
func parse(name string, b []byte, to any) error {
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// A finder follows the index of an image layout.
type finder struct {
	in       store
	followed map[reference]bool
	found    []image
}

// A reference is what a descriptor says of a blob. Each is followed once, because indexes that refer to each other many times would
// have to be read as often as the product of that.
type reference struct {
	digest digest
	index  bool
}

// blob returns where a blob is.
func blob(d digest) (string, error) {
	algorithm, sum, _, err := d.split()
	return blobDir + algorithm + "/" + sum, err
}

// blob returns the name and the contents of the blob of a descriptor, whose digest is compared.
func (f *finder) blob(d *descriptor) (string, []byte, error) {
	name, err := blob(d.Digest)
	if err != nil {
		return "", nil, err
	}
	b, err := f.in.description(name)
	if err != nil {
		return name, b, err
	}
	_, _, h, _ := d.Digest.split()
	h.Write(b)
	if err := d.Digest.compare(h); err != nil {
		return name, b, fmt.Errorf("%s: %w", name, err)
	}
	return name, b, nil
}

// index adds the images of an index; ref is what the one around it calls it.
func (f *finder) index(name string, b []byte, ref string, depth int) error {
	var index ociIndex
	if err := parse(name, b, &index); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d indexes in each other", name, maxDepth)
	}
	for i := range index.Manifests {
		if err := f.manifest(&index.Manifests[i], ref, depth); err != nil {
			return err
		}
		if len(f.found) > maxImages {
			return fmt.Errorf("%s: more than %d images", name, maxImages)
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
	name, b, err := f.blob(d)
	if missing(err) {
		p.err = fmt.Errorf("%s is not there; the manifest of this image was expected", name)
		f.found = append(f.found, p)
		return nil
	}
	if err != nil {
		return err
	}
	if to.index {
		return f.index(name, b, ref, depth+1)
	}
	var m ociManifest
	if err := parse(name, b, &m); err != nil {
		return err
	}
	if m.Config.MediaType != typeConfig && m.Config.MediaType != typeDockerConfig {
		return nil // an artifact of another kind
	}
	if p.platform == "" {
		if file, b, err := f.blob(&m.Config); err == nil {
			var c ociConfig
			_ = parse(file, b, &c) // it has no more than a label to give
			p.platform = c.platform.String()
		}
	}
	if err := few(name, len(m.Layers)); err != nil {
		return err
	}
	for _, l := range m.Layers {
		file, err := blob(l.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.layers = append(p.layers, layer{file: f.in.real(file), digest: l.Digest})
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

func isDocker(b []byte) bool {
	var images []saved
	return json.Unmarshal(b, &images) == nil && len(images) > 0 && images[0].Config != ""
}

// docker returns the images that "docker save" has written.
func docker(in store) ([]image, error) {
	b, err := in.description(dockerFile)
	if err != nil {
		return nil, err
	}
	var images []saved
	if err := parse(dockerFile, b, &images); err != nil {
		return nil, err
	}
	if len(images) > maxImages {
		return nil, fmt.Errorf("%s: more than %d images", dockerFile, maxImages)
	}
	var out []image
	for _, saved := range images {
		b, err := in.description(saved.Config)
		if err != nil {
			return nil, err
		}
		if err := few(dockerFile, len(saved.Layers)); err != nil {
			return nil, err
		}
		var c ociConfig
		if err := parse(saved.Config, b, &c); err != nil {
			return nil, err
		}
		p := image{id: saved.Config, platform: c.platform.String()}
		if len(saved.RepoTags) > 0 {
			p.ref = saved.RepoTags[0]
		}
		for i, name := range saved.Layers {
			l := layer{file: in.real(name), unpacked: true}
			if diffs := c.RootFS.DiffIDs; len(diffs) == len(saved.Layers) {
				if _, _, _, err := diffs[i].split(); err == nil {
					l.digest = diffs[i]
				}
			}
			p.layers = append(p.layers, l)
		}
		out = append(out, p)
	}
	return out, nil
}

// A layoutDir is a directory with an image layout.
type layoutDir string

func (f layoutDir) real(name string) string { return name }

func (f layoutDir) description(name string) ([]byte, error) {
	r, size, err := open(filepath.Join(string(f), filepath.FromSlash(name)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, early(err))
	}
	defer r.Close()
	if size > maxSmall {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are accepted of what describes an image", name, size, maxSmall)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSmall))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, early(err))
	}
	return b, nil
}

func (f layoutDir) layers(names []string, fn func(name string, in io.Reader) error) error {
	for _, name := range names {
		r, _, err := open(filepath.Join(string(f), filepath.FromSlash(name)))
		if err != nil {
			return fmt.Errorf("%s: %w", name, early(err))
		}
		err = fn(name, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
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
