package files_test

import (
	"bytes"
	"context"
	"debug/elf"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/must"
)

const fixtures = "../../testdata/bin"

// inMemory converts a file in memory.
func inMemory(b []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	return out.Bytes(), res, err
}

// sectionOf returns the contents and the header of a section, as read by debug/elf.
func sectionOf(t *testing.T, b []byte, name string) ([]byte, *elf.Section) {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	s := f.Section(name)
	data := must.Get(s.Data())(t)
	return data, s
}
