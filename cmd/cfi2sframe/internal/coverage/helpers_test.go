package coverage

import (
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// fixture returns a test program.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	return testfile.Read(t, "../../../../testdata/bin/amd64/"+name)
}

// namesOf returns the names of the functions of a file.
func namesOf(f *elffile.File) *Names {
	limit := maxLocated
	return NewNames(f, nil, &limit)
}

// gapsOf returns the gaps of the conversion of a file to V2, the functions that contain them, and the code without CFI.
func gapsOf(t *testing.T, f *elffile.File) (gaps []translate.Gap, functions []Function, u Uncovered) {
	t.Helper()
	run := &convert.Run{In: f.Contents(), Size: int64(f.Size), Report: func(d *convert.Details) error {
		names := namesOf(d.File)
		gaps, functions, u = d.Translation.Gaps, names.Of(d.Translation.Gaps), names.Uncovered(d)
		return nil
	}}
	must.Get(convert.Add(t.Context(), run, convert.Options{Version: sframe.V2, NoVerify: true, Workers: 1}))(t)
	return gaps, functions, u
}
