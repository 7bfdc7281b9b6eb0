// Package generate writes the vectors of the directory conformance. The same sources give the same bytes.
package generate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("vectors", "", 0, 0)
	again := c.Bool("assemble", false,
		"have GNU as and ld of Debian 12 and of the systems of scripts/peers make their sections anew")
	c.Run = func([]string) error {
		if *again {
			b, err := assemble(".")
			if err == nil {
				err = os.WriteFile(linkedFile, b, 0o666)
			}
			if err != nil {
				return err
			}
		}
		return run(".", "conformance/vectors")
	}
	return c
}

// run writes all files to a directory. The top is that of the repository.
func run(top, dir string) error {
	files := make(map[string]*vector.File)
	add := func(name, about string, vectors []vector.Vector) {
		f := files[name]
		if f == nil {
			f = &vector.File{About: about}
			files[name] = f
		}
		f.Vectors = append(f.Vectors, vectors...)
	}
	for _, f := range forms {
		add("hand-v"+f.format, "Sections made by hand, of format "+f.format, hand(f))
	}
	for _, f := range refuseForms {
		add("refuse-v"+f.format, "Sections of format "+f.format+" that are to be refused", refuse(f))
	}
	made, err := programs(top)
	if err != nil {
		return err
	}
	for name, vectors := range made {
		add(name, "Sections that cfi2sframe makes, of format "+strings.TrimPrefix(name, "program-v"), vectors)
	}
	gnus, mistakes, err := gnuVectors(top)
	if err != nil {
		return err
	}
	add("gnu", "Sections that GNU as and ld have made", gnus)
	b, err := lines(mistakes)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "../writers.json"), b, 0o666)
	}
	if err != nil {
		return err
	}
	for name, f := range files {
		b, err := f.Encode()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// lines returns a list in JSON with a line for each value.
func lines[T any](list []T) ([]byte, error) {
	b, separator := []byte("["), ""
	for _, v := range list {
		line, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, "%s\n%s", separator, line)
		separator = ","
	}
	return append(b, "\n]\n"...), nil
}
