package convert_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestAppended converts programs with data after everything that headers describe, whose trailer contains the data's
// file offset.
func TestAppended(t *testing.T) {
	prog := testfile.Read(t, filepath.Join(fixtures, "amd64/prologue"))
	zeros := make([]byte, 200_000)
	payload := slices.Concat([]byte("data"), zeros, []byte("offset 1234"))
	appended := slices.Concat(prog, payload, zeros)
	const want = "it has 200015 bytes of appended data, which its program may find by their offset"

	_, _, err := inMemory(appended, convert.Options{})
	if err == nil || err.Error() != want || !errors.Is(err, convert.ErrAppended) {
		t.Errorf("convert: %v; want %s", err, want)
	}
	_, res, err := runBytes(appended, skip(add(convert.Options{Update: true})))
	if err != nil || res.Stays != convert.Appended || res.Kept[0].Why.Error() != want {
		t.Errorf("convert or skip: %+v, %v", res, err)
	}
	forced, _, err := inMemory(appended, convert.Options{Force: true})
	if err != nil || !bytes.HasSuffix(forced, slices.Concat(payload, zeros)) {
		t.Errorf("convert with Force: %v", err)
	}
	if again, _, err := inMemory(forced, convert.Options{Update: true}); err != nil || !bytes.Equal(again, forced) {
		t.Errorf("update: %v", err)
	}

	alone, _ := must.Two(runBytes(appended, detach(convert.Options{})))(t)
	if _, _, err := runBytes(appended, attach(alone)); !errors.Is(err, convert.ErrAppended) {
		t.Errorf("attach: %v", err)
	}
	section := companion(bytes.NewReader(alone), int64(len(alone)))
	if _, _, err := runBytes(appended, attachWith(section, convert.Options{Force: true})); err != nil {
		t.Errorf("attach with Force: %v", err)
	}

	// The runtime of an AppImage finds its image at the end of the section headers.
	image := slices.Clone(appended)
	copy(image[8:], "AI\x02")
	for name, b := range map[string][]byte{
		"zeros": slices.Concat(prog, zeros), "AppImage": image,
		"object": append(elftest.NewObject().Bytes(), "data"...),
	} {
		if _, _, err := inMemory(b, convert.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
