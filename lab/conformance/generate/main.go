// Package generate writes those vectors of the directory conformance that are made by hand. The same sources give the
// same bytes.
package generate

import (
	"fmt"
	"os"
	"path/filepath"

	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("vectors", "", 0, 0)
	c.Run = func([]string) error { return run("conformance/vectors") }
	return c
}

// run writes the files of sections made by hand to a directory.
func run(dir string) error {
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
