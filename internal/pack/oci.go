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

type ociIndex struct{ Manifests []descriptor }

type ociManifest struct {
	Config descriptor
	Layers []descriptor
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

// split returns the parts of the digest, and what sums up by it.
func (d digest) split() (algorithm, sum string, h hash.Hash, err error) {
	algorithm, sum, _ = strings.Cut(string(d), ":")
	switch algorithm {
	case "sha256":
		h = sha256.New()
	case "sha384":
		h = sha512.New384()
	case "sha512":
		h = sha512.New()
	default:
		return "", "", nil, fmt.Errorf("digest %q: unsupported algorithm", d)
	}
	if b, err := hex.DecodeString(sum); err != nil || len(b) != h.Size() || strings.ToLower(sum) != sum {
		return "", "", nil, fmt.Errorf("digest %q: not a sum of %d bytes in hexadecimal digits", d, h.Size())
	}
	return algorithm, sum, h, nil
}

// compare returns an error if the digest is not that of what h has summed up.
func (d digest) compare(h hash.Hash) error {
	algorithm, sum, _, err := d.split()
	if have := hex.EncodeToString(h.Sum(nil)); err == nil && have != sum {
		err = fmt.Errorf("the digest is %s:%s, not %s", algorithm, have, d)
	}
	return err
}
