package pack

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// The parts of the OCI image format that are read: "OCI Image Format Specification" 1.1, image-index.md, manifest.md,
// config.md and descriptor.md.

// An ociManifest is an index, which has manifests, or the manifest of an image.
type ociManifest struct {
	Manifests []descriptor
	Config    descriptor
	Layers    []descriptor
}

type ociConfig struct {
	platform
	RootFS struct {
		DiffIDs []digest `json:"diff_ids"` // of what the layers unpack to
	}
}

// A descriptor leads to a blob.
type descriptor struct {
	MediaType   string
	Digest      digest
	Annotations map[string]string
	Platform    platform
}

// The media types, and those of Docker with the same contents.
const (
	typeIndex        = "application/vnd.oci.image.index.v1+json"
	typeConfig       = "application/vnd.oci.image.config.v1+json"
	typeDockerList   = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeDockerConfig = "application/vnd.docker.container.image.v1+json"
)

type platform struct{ OS, Architecture, Variant string }

// String returns OCI's form, such as linux/arm/v7, or "" of an unknown platform.
func (p platform) String() string {
	if p.OS == "" || p.Architecture == "" {
		return ""
	}
	return strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
}

// A digest is an algorithm, a colon, and a sum in hexadecimal digits.
type digest string

var hashes = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}

// hash returns what sums up by the digest's algorithm.
func (d digest) hash() (hash.Hash, error) {
	algorithm, sum, _ := strings.Cut(string(d), ":")
	newHash, ok := hashes[algorithm]
	if !ok {
		return nil, fmt.Errorf("digest %q: unsupported algorithm", d)
	}
	h := newHash()
	if b, err := hex.DecodeString(sum); err != nil || len(b) != h.Size() || strings.ToLower(sum) != sum {
		return nil, fmt.Errorf("digest %q: not a sum of %d bytes in hexadecimal digits", d, h.Size())
	}
	return h, nil
}

// file returns where the blob is.
func (d digest) file() string { return blobDir + strings.Replace(string(d), ":", "/", 1) }

// compare returns an error if the digest is not that of what h has summed up.
func (d digest) compare(h hash.Hash) error {
	algorithm, sum, _ := strings.Cut(string(d), ":")
	if have := hex.EncodeToString(h.Sum(nil)); have != sum {
		return fmt.Errorf("the digest is %s:%s, not %s", algorithm, have, d)
	}
	return nil
}

// check is compare for bytes.
func (d digest) check(b []byte) error {
	h, err := d.hash()
	if err != nil {
		return err
	}
	h.Write(b)
	return d.compare(h)
}
