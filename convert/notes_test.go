package convert_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestOwnNotes converts programs with notes that they read themselves, by an address in their code
// or data, and runs them: whatever moves, they have to print the same. Where nothing can give way,
// the file is refused, and the note is named.
func TestOwnNotes(t *testing.T) {
	const (
		gcc     = "gcc-16 -O2 note.c "
		own     = "-DKIND=OWN -DREACH=CODE -DSECTION=.note.version "
		pack    = "-DKIND=PACKAGE -DSECTION=.note.release "
		large   = "-DPOINTER -Wl,-z,notext " // aligned to 8 bytes, which gives it a PT_NOTE of its own
		lld     = "-Blld "
		mold    = "-fuse-ld=mold "
		library = "-shared -fPIC -DLIBRARY -o libnote.so"
		program = "-o prog"
	)
	for _, tt := range []struct {
		name, build string
		refused     string // "" if there is a way
	}{
		{"unknown, PIE", gcc + own + program,
			`.note.gnu.build-id at file offset 0x350 cannot be moved: the program may read the note by "App" of type 0x1`},
		{"unknown, ET_EXEC", gcc + own + "-no-pie " + program, ""},
		{"unknown, static", gcc + own + "-static " + program, ""},
		{"unknown, static, lld", gcc + own + "-static " + lld + program, ""},
		{"unknown, static, mold", gcc + own + "-static " + mold + program, ""},
		{"unknown, static, no separate code", gcc + own + "-static -Wl,-z,noseparate-code " + program, ""},
		{"unknown, static-pie", gcc + own + "-static-pie -fPIE " + program, `the note by "App" of type 0x1`},
		{"unknown, library", gcc + own + library, `the note by "App" of type 0x1`},
		{"unknown, library, lld", gcc + own + lld + library, `the note by "App" of type 0x1`},
		{"unknown, library, mold", gcc + own + mold + library, `the note by "App" of type 0x1`},
		{"unknown, library, mold, spare headers", gcc + own + mold + "-Wl,--spare-program-headers=2 " + library, ""},
		{"unknown, PT_NOTE of its own, PIE", gcc + own + large + program, ""},
		{"unknown, PT_NOTE of its own, PIE, lld", gcc + own + large + lld + program, ""},
		{"unknown, PT_NOTE of its own, library", gcc + own + large + library, `the note by "App" of type 0x1`},
		{"package, pointer to it, PIE", gcc + pack + "-DREACH=DATA " + program, "refers"},
		{"package, pointer to it, library", gcc + pack + "-DREACH=DATA " + library, "refers"},
		{"package, symbol, library", gcc + pack + "-DREACH=SYMBOL " + library, "refers"},
		{"package, relocations that were kept, library", gcc + pack + "-DREACH=CODE -Wl,--emit-relocs " + library,
			"refers"},
		{"package, relative relocations, packed", gcc + pack + "-DREACH=DATA -Wl,-z,pack-relative-relocs " + library,
			"refers"},
		{"package, section with symbols of its start", gcc + "-DKIND=PACKAGE -DREACH=START -DSECTION=package_note -s " +
			library, "symbols of its start"},
		{"package, nothing refers to it", gcc + pack + "-DREACH=NONE " + library, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, build := "prog", tt.build
			if strings.HasSuffix(build, library) {
				file, build = "libnote.so", build+"; gcc-16 -DMAIN note.c ./libnote.so -o prog"
			}
			dir := peer.Run(t, "sid", "mkdir lld; ln -s /usr/bin/ld.lld-23 lld/ld; { "+build+
				"; } 2>log || { cat log; exit 1; }; ./prog >before", "../testdata/c/note.c")
			in := filepath.Join(dir, file)
			out := filepath.Join(t.TempDir(), file)
			_, err := files.Convert(context.Background(), in, out,
				files.Options{Work: files.Add(convert.Options{Version: sframe.V2}, "")})
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("error is %v; want %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Error(err)
			}
			replace(t, out, in)
			peer.Again(t, "sid", dir, "./prog >after")
			before, after := testfile.Read(t, filepath.Join(dir, "before")),
				testfile.Read(t, filepath.Join(dir, "after"))
			if !bytes.Equal(before, after) {
				t.Errorf("printed\n%s\nexpected\n%s", after, before)
			}
		})
	}
}

// replace puts a file in the place of another one.
func replace(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, testfile.Read(t, from), 0o777); err != nil {
		t.Fatal(err)
	}
}

// TestCrashpadNote converts programs with a note that counts from itself, and moves.
func TestCrashpadNote(t *testing.T) {
	for _, tt := range []struct{ name, flags string }{
		{"PIE, lld", "-Blld"},
		{"PIE", ""},
		{"ET_EXEC", "-no-pie"},
		{"static", "-static"},
		{"static, lld", "-static -Blld"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := peer.Run(t, "sid", "mkdir lld; ln -s /usr/bin/ld.lld-23 lld/ld; gcc-16 -O2 crashpad.c "+tt.flags+
				" -o prog; ./prog >before; grep -q . before", "../testdata/c/crashpad.c")
			in := filepath.Join(dir, "prog")
			out, _ := run(t, in, convert.Options{})
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Error(err)
			}
			if open(t, in).Section(".note.crashpad.info").Addr == open(t, out).Section(".note.crashpad.info").Addr {
				t.Error("the note has not moved")
			}
			replace(t, out, in)
			peer.Again(t, "sid", dir, "./prog >after; diff before after")
		})
	}
}

// TestMergedNotes has three PT_NOTEs, one after the other, of which one becomes. That is enough,
// and nothing else moves, although it had been tried.
func TestMergedNotes(t *testing.T) {
	dir := peer.Run(t, "sid", "mkdir lld; ln -s /usr/bin/ld.lld-23 lld/ld; gcc-16 -O2 note.c -DKIND=OWN -DREACH=CODE -DSECTION=.note.version "+
		"-DPOINTER -Wl,-z,notext -Blld -Wl,-dynamic-linker=/lib64//ld-linux-x86-64.so.2 -o prog; ./prog >before",
		"../testdata/c/note.c")
	in := filepath.Join(dir, "prog")
	out, _ := run(t, in, convert.Options{})
	before, after := open(t, in), open(t, out)
	if err := image.Compare(before, after); err != nil {
		t.Error(err)
	}
	count := func(f *elffile.File) (n int) {
		for i := range f.Progs {
			if elf.ProgType(f.Progs[i].Type) == elf.PT_NOTE {
				n++
			}
		}
		return n
	}
	if a, b := count(before), count(after); a != 3 || b != 1 {
		t.Errorf("%d PT_NOTEs become %d; want 3 and 1", a, b)
	}
	for i := range before.Sections {
		if s := &before.Sections[i]; s.Alloc() && after.Section(s.Name).Addr != s.Addr {
			t.Errorf("%s moves from %#x to %#x", s.Name, s.Addr, after.Section(s.Name).Addr)
		}
	}
	replace(t, out, in)
	peer.Again(t, "sid", dir, "./prog >after; diff before after")
}

// TestNotesFromHeader converts programs that find their notes from the ELF header on, and runs them: a note that
// moves to another segment would be at another distance from the header than in the file.
func TestNotesFromHeader(t *testing.T) {
	for _, flags := range []string{
		"-fuse-ld=mold -Wl,--build-id=none -Wl,--hash-style=gnu -Wl,-z,max-page-size=0x10000",
		"-fuse-ld=mold -Wl,--build-id=none -Wl,--hash-style=gnu",
		"-Wl,--build-id=none",
		"-Wl,--build-id=none -Blld",
		"-static-pie -fPIE",
		"-static",
		"-static -Blld",
	} {
		t.Run(flags, func(t *testing.T) {
			dir := peer.Run(t, "sid", "mkdir lld; ln -s /usr/bin/ld.lld-23 lld/ld; gcc-16 -O2 header.c "+flags+
				" -o prog; ./prog >before; grep -q GNU before", "../testdata/c/header.c")
			in := filepath.Join(dir, "prog")
			out, c := run(t, in, convert.Options{})
			front := open(t, in).Prog(elf.PT_LOAD).Vaddr != open(t, out).Prog(elf.PT_LOAD).Vaddr
			if c.StaleHeaders != front {
				t.Errorf("the header at __ehdr_start is an old one: %t; want %t", c.StaleHeaders, front)
			}
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Error(err)
			}
			replace(t, out, in)
			peer.Again(t, "sid", dir, "./prog >after; diff before after")
		})
	}
}
