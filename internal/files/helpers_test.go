package files_test

import (
	"bytes"
	"context"

	"cfi2sframe/convert"
)

const fixtures = "../../testdata/bin"

// inMemory converts a file in memory.
func inMemory(b []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	var out bytes.Buffer
	res, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	return out.Bytes(), res, err
}
