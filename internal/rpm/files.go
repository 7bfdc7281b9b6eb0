package rpm

// Files are those of a package, as its header describes them.
type Files struct {
	Names               []string
	Sizes, Modes, Flags []uint64

	devices, inodes []uint64
	linked          map[[2]uint64][]int // names of the same file, by its device and inode
}

// maxNames bounds the bytes of all names: many may be in a directory with a long name. It is a variable for tests.
var maxNames = 64 << 20

// Files returns the files that the header describes.
func (h *Header) Files() (*Files, error) {
	base, err := h.Texts(TagBaseNames)
	if err != nil {
		return nil, err
	}
	dirs, err := h.Texts(TagDirNames)
	if err != nil {
		return nil, err
	}
	sizes := uint32(TagFileSizes)
	if h.Has(TagLongFileSizes) {
		sizes = TagLongFileSizes
	}
	f := &Files{Names: make([]string, len(base)), linked: make(map[[2]uint64][]int)}
	var dirIndexes []uint64
	for _, list := range []struct {
		tag uint32
		to  *[]uint64
	}{
		{TagDirIndexes, &dirIndexes}, {sizes, &f.Sizes}, {TagFileModes, &f.Modes}, {TagFileFlags, &f.Flags},
		{TagFileDevices, &f.devices}, {TagFileInodes, &f.inodes},
	} {
		if *list.to, err = h.Numbers(list.tag); err != nil {
			return nil, err
		}
		if n := len(*list.to); n != len(base) {
			return nil, Errorf(h.Off, "tag %d has %d values for %d files", list.tag, n, len(base))
		}
	}
	left := maxNames
	for i := range base {
		if dirIndexes[i] >= uint64(len(dirs)) {
			return nil, Errorf(h.Off, "tag %d has %d for file %d, but there are %d directories",
				TagDirIndexes, dirIndexes[i], i, len(dirs))
		}
		dir := dirs[dirIndexes[i]]
		if left -= len(dir) + len(base[i]); left < 0 {
			return nil, Errorf(h.Off, "names of files with more than %d bytes in total", maxNames)
		}
		f.Names[i] = string(dir) + string(base[i])
		if f.isLinked(i) {
			f.linked[f.inode(i)] = append(f.linked[f.inode(i)], i)
		}
	}
	return f, nil
}

func (f *Files) inode(i int) [2]uint64 { return [2]uint64{f.devices[i], f.inodes[i]} }

// isLinked reports whether others with the same inode are the same file.
func (f *Files) isLinked(i int) bool {
	return f.Modes[i]&ModeType == ModeFile && f.Flags[i]&flagGhost == 0 && f.inodes[i] != 0
}

// Linked returns all names of a file in their order, by their numbers.
func (f *Files) Linked(i int) []int {
	if f.isLinked(i) {
		return f.linked[f.inode(i)]
	}
	return []int{i}
}

// stored returns how many bytes of a file are in the payload, where its member has no size. Of several names the last
// one comes with the contents; those of a symbolic link are its target.
func (f *Files) stored(i int) uint64 {
	switch f.Modes[i] & ModeType {
	case ModeFile:
		if all := f.Linked(i); all[len(all)-1] != i {
			return 0
		}
		return f.Sizes[i]
	case ModeLink:
		return f.Sizes[i]
	}
	return 0
}
