package corpus

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"cfi2sframe/internal/testkit/suite"
)

// dump compares the output of cfi2sframe dump with that of objdump --sframe, from "Function Index" on: format 2 with
// binutils 2.44, format 3 with 2.47.
func (c *corpus) dump(j *job) error {
	in, tool := "sid", "objdump"
	if j.form == "--format 2" {
		in = "trixie"
	}
	switch {
	case j.machine == elf.EM_AARCH64:
		tool = "aarch64-linux-gnu-objdump"
	case j.machine == elf.EM_S390 && in == "trixie":
		return nil // unknown to 2.44
	case j.machine == elf.EM_S390:
		tool = "s390x-linux-gnu-objdump"
	}
	objdump, err := suite.Program(in, tool)
	if err != nil {
		return err
	}
	var printed [2][][]byte
	for i, words := range [][]string{
		{c.program, "dump", j.out}, slices.Concat(objdump, []string{"--sframe=.sframe", j.out}),
	} {
		text, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%v: %w", words, err)
		}
		_, index, found := bytes.Cut(text, []byte("Function Index"))
		if !found {
			return fmt.Errorf("%v prints no function index", words)
		}
		printed[i] = bytes.Split(index, []byte("\n"))
	}
	for i, line := range printed[0] {
		if i >= len(printed[1]) || !bytes.Equal(line, printed[1][i]) {
			return fmt.Errorf("dump prints %q, and objdump a different line", line)
		}
	}
	if len(printed[0]) < len(printed[1]) {
		return errors.New("objdump prints more lines than dump")
	}
	return nil
}
