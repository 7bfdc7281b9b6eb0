package pack

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"cfi2sframe/elffile"
)

// files returns the files of an unpacked tar: of equal names the last counts, and links are further names.
func files(entries []entry) ([]File, error) {
	names := make(map[string]int) // -1: no file
	for _, e := range entries {
		switch e.typ {
		case isFile:
			names[e.name] = e.member
		case isLink:
			m, ok := names[e.link]
			if !ok {
				return nil, fmt.Errorf("the hard link %s leads to %s, which is not before it", e.name, e.link)
			}
			names[e.name] = m
		default:
			names[e.name] = -1
		}
	}
	out := first(names)
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Member, b.Member) })
	return out, nil
}

// first returns every file once, with the first of its names.
func first(names map[string]int) []File {
	best := make(map[int]string)
	for name, m := range names {
		if have, ok := best[m]; m >= 0 && (!ok || name < have) {
			best[m] = name
		}
	}
	out := make([]File, 0, len(best))
	for m, name := range best {
		out = append(out, File{name, m, nil})
	}
	return out
}

// A node is an entry of an image.
type node struct {
	entry
	children map[string]*node // of a directory
}

func newDir() *node { return &node{entry{typ: isDir}, make(map[string]*node)} }

// How layers say that something below is gone (OCI image layer specification, "Whiteouts"). Other names with the first
// prefix twice are what AUFS needs for itself.
const (
	whiteout = ".wh."
	ownAUFS  = ".wh..wh."
	opaque   = ".wh..wh..opq"
)

// maxLinks is how many symbolic links are followed for a name, as by programs that unpack images.
const maxLinks = 255

// A tree has the files that a container sees. A short name can lead through links to thousands of directories.
type tree struct {
	root   *node
	budget *elffile.Budget
}

// dir returns the directory with the given name, through symbolic links, or nil. If create is true, it is made where it
// is missing, and never nil.
func (t *tree) dir(name string, create bool) (*node, error) {
	at := []*node{t.root} // the way here
	todo := strings.Split(name, "/")
	links, steps := 0, 1
	for len(todo) > 0 {
		if err := t.budget.Spend(costStep, uint64(steps)); err != nil {
			return nil, fmt.Errorf("directories on the way to %.100s: %w", name, err)
		}
		steps = 1
		part := todo[0]
		todo = todo[1:]
		here := at[len(at)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			at = at[:max(1, len(at)-1)]
			continue
		}
		next := here.children[part]
		if next != nil && next.typ == isSymlink {
			if links++; links > maxLinks {
				return nil, fmt.Errorf("%s leads through more than %d symbolic links", name, maxLinks)
			}
			if strings.HasPrefix(next.link, "/") {
				at = at[:1]
			}
			parts := strings.Split(next.link, "/")
			steps += len(parts) + len(todo)
			todo = append(parts, todo...)
			continue
		}
		if next == nil || next.typ != isDir {
			if !create {
				return nil, nil
			}
			next = newDir()
			here.children[part] = next
		}
		at = append(at, next)
	}
	return at[len(at)-1], nil
}

// add puts a layer on top.
func (t *tree) add(entries []entry) error {
	for _, e := range entries {
		dir, base := path.Split(e.name)
		if !strings.HasPrefix(base, whiteout) {
			continue
		}
		in, err := t.dir(dir, false)
		switch {
		case err != nil:
			return err
		case in == nil:
		case base == opaque:
			clear(in.children)
		case !strings.HasPrefix(base, ownAUFS):
			delete(in.children, base[len(whiteout):])
		}
	}
	for _, e := range entries {
		dir, base := path.Split(e.name)
		if base == "" || strings.HasPrefix(e.name, whiteout) || strings.Contains(e.name, "/"+whiteout) {
			continue
		}
		in, err := t.dir(dir, true)
		if err != nil {
			return err
		}
		n := &node{entry: e}
		switch e.typ {
		case isDir:
			if old := in.children[base]; old != nil && old.typ == isDir {
				continue
			}
			n = newDir()
		case isLink:
			dir, base := path.Split(e.link)
			from, err := t.dir(dir, false)
			if err != nil {
				return err
			}
			if from == nil || from.children[base] == nil {
				return fmt.Errorf("the hard link %s leads to %s, which is in no layer so far", e.name, e.link)
			}
			if n = from.children[base]; n.typ == isDir {
				return fmt.Errorf("the hard link %s leads to %s, a directory", e.name, e.link)
			}
		}
		in.children[base] = n
	}
	return nil
}

// files returns the files in the order of their names.
func (t *tree) files() ([]File, error) {
	names := make(map[string]int)
	var err error
	var add func(prefix string, n *node)
	add = func(prefix string, n *node) {
		for name, c := range n.children {
			name = prefix + name
			if err = cmp.Or(err, t.budget.Spend(costName, uint64(len(name)))); err != nil {
				return
			}
			switch c.typ {
			case isFile:
				names[name] = c.member
			case isDir:
				add(name+"/", c)
			}
		}
	}
	add("", t.root)
	if err != nil {
		return nil, err
	}
	out := first(names)
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
