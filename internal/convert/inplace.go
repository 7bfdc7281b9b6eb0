package convert

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// InPlace replaces files by their results. Where several of them are names of one file
// (hard or symbolic links), that is converted once, and all get the result.
type InPlace struct {
	done map[inode.ID]string // by what it was before or is now, a name of the result
}

// File replaces one file. The result is nil if the file is another name of one that was
// replaced before.
func (p *InPlace) File(ctx context.Context, path string, opt Options) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, outfile.Plain(err)
	}
	before, ok := inode.Of(info)
	if !ok {
		return File(ctx, path, path, opt)
	}
	if name, ok := p.done[before]; ok {
		return nil, relink(name, path)
	}
	res, err := File(ctx, path, path, opt)
	if err != nil {
		return nil, err
	}
	if p.done == nil {
		p.done = make(map[inode.ID]string)
	}
	if res.Links > 0 { // otherwise a new file can have the number
		p.done[before] = path
	}
	if info, err := os.Stat(path); err == nil {
		if after, ok := inode.Of(info); ok {
			p.done[after] = path
		}
	}
	return res, nil
}

// resolve follows symbolic links to a file.
func resolve(path string) (string, fs.FileInfo, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Stat(path)
	return path, info, err
}

// relink makes path another name of the file that name stands for, if it is not yet.
func relink(name, path string) error {
	from, a, err := resolve(name)
	if err != nil {
		return outfile.Plain(err)
	}
	to, b, err := resolve(path)
	if err != nil {
		return outfile.Plain(err)
	}
	if os.SameFile(a, b) {
		return nil
	}
	// A link cannot replace a name; a new one that is renamed can.
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".cfi2sframe-*")
	if err != nil {
		return outfile.Plain(err)
	}
	defer os.RemoveAll(tmp)
	link := filepath.Join(tmp, "link")
	if err := os.Link(from, link); err != nil {
		return outfile.Plain(err)
	}
	return outfile.Plain(os.Rename(link, to))
}
