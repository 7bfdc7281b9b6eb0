package files_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"testing"

	"cfi2sframe/convert"
)

const fixtures = "../../testdata/bin"

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

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
