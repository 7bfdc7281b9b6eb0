package files_test

import (
	"bytes"
	"context"
	"debug/elf"
	"testing"

	"cfi2sframe/convert"
)

const fixtures = "../../testdata/bin"

// inMemory converts a file in memory.
func inMemory(b []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	return out.Bytes(), res, err
}

// sectionOf returns the bytes of a section and where it is, as debug/elf finds it.
func sectionOf(t *testing.T, b []byte, name string) ([]byte, *elf.Section) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(name)
	data, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	return data, s
}
