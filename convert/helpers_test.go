package convert_test

import (
	"bytes"
	"context"
	"io"
	"os"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
)

// A job is an operation on a file.
type job func(context.Context, *convert.Run) (*convert.Result, error)

func add(opt convert.Options) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		return convert.Add(ctx, run, opt)
	}
}

func remove(symbols string) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		return convert.Remove(ctx, run, symbols)
	}
}

func detach(opt convert.Options) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		return convert.Detach(ctx, run, 0, opt)
	}
}

// attach attaches the section of an ELF file.
func attach(alone []byte) job { return attachRead(bytes.NewReader(alone), int64(len(alone))) }

// attachRead is attach for a reader.
func attachRead(r io.ReaderAt, size int64) job {
	return attachWith(companion(r, size), convert.Options{})
}

func attachWith(section convert.Opener, opt convert.Options) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		return convert.Attach(ctx, run, section, opt)
	}
}

// companion returns an Opener for the ELF file in r.
func companion(r io.ReaderAt, size int64) convert.Opener {
	return func(*elffile.File) (*convert.Companion, error) {
		f, err := elffile.New(r, size)
		if err != nil {
			return nil, err
		}
		return &convert.Companion{ELF: f, Path: "detached", Closer: io.NopCloser(nil)}, nil
	}
}

// skip wraps a job so that unsupported files are skipped.
func skip(j job) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		run.SkipUnsupported = true
		return j(ctx, run)
	}
}

// dry wraps a job so that nothing is written.
func dry(j job) job {
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		run.Create = nil
		return j(ctx, run)
	}
}

// runBytes runs a job on a file in memory, and returns the output. The output of a dry run is empty.
func runBytes(b []byte, j job) ([]byte, *convert.Result, error) {
	return runReader(bytes.NewReader(b), int64(len(b)), j)
}

// runReader is runBytes for a reader.
func runReader(r io.ReaderAt, size int64, j job) ([]byte, *convert.Result, error) {
	out, err := os.CreateTemp("", "cfi2sframe-test-")
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	os.Remove(out.Name())
	run := &convert.Run{In: r, Size: size, Create: func() (*os.File, error) { return out, nil }}
	res, err := j(context.Background(), run)
	if err != nil || run.Create == nil {
		return nil, res, err
	}
	result := io.NewSectionReader(out, 0, 1<<40)
	if res.Stays != "" {
		result = io.NewSectionReader(r, 0, size)
	}
	b, err := io.ReadAll(result)
	return b, res, err
}

// inMemory adds a section to a file in memory.
func inMemory(b []byte, opt convert.Options) ([]byte, *convert.Result, error) {
	return runBytes(b, add(opt))
}

// check compares the section of a file with its CFI.
func check(b []byte) (*convert.Comparison, error) {
	return checkRead(bytes.NewReader(b), int64(len(b)), "")
}

// checkRead is like check, but for a reader, and for a section located by symbols unless symbols is empty.
func checkRead(r io.ReaderAt, size int64, symbols string) (*convert.Comparison, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return nil, err
	}
	s, err := convert.FindSection(f, symbols)
	if err != nil {
		return nil, readError(f, err)
	}
	table, err := convert.LoadCFI(context.Background(), f, convert.Loading{})
	if err != nil {
		return nil, readError(f, err)
	}
	c, err := convert.Check(f, s, table)
	if err = readError(f, err); f.ReadError() != nil {
		c = nil
	}
	return c, err
}

// readError returns the error from reading f, or err if all reads succeeded.
func readError(f *elffile.File, err error) error {
	if failed := f.ReadError(); failed != nil {
		return failed
	}
	return err
}

// dumpRead prints the section of a file, or a bare section.
func dumpRead(w io.Writer, r io.ReaderAt, size int64) error {
	bare, err := convert.ReadBare(r, size)
	if err != nil {
		return err
	}
	if bare != nil {
		return convert.Dump(w, nil, bare)
	}
	f, err := elffile.New(r, size)
	if err != nil {
		return err
	}
	s, err := convert.FindSection(f, "")
	if err := readError(f, err); err != nil {
		return err
	}
	return convert.Dump(w, f, s)
}
