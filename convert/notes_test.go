package convert_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestOwnNotes converts programs that read their own notes through an address in code or data, and runs them: the
// output must not change. If no layout is possible, the file must be rejected with an error that names the note.
func TestOwnNotes(t *testing.T) {
	const (
		gcc     = "gcc-16 -O2 note.c "
		own     = "-DKIND=OWN -DREACH=CODE -DSECTION=.note.version "
		pack    = "-DKIND=PACKAGE -DSECTION=.note.release "
		large   = "-DPOINTER -Wl,-z,notext " // aligned to 8 bytes, so it gets a separate PT_NOTE
		lld     = "-Blld "
		mold    = "-fuse-ld=mold "
		library = "-shared -fPIC -DLIBRARY -o libnote.so"
		program = "-o prog"
	)
	for i, tt := range []struct {
		name, build string
		refused     string // "" if there is a layout
	}{
		{"unknown, PIE", gcc + own + program, `.note.gnu.build-id at file offset 0x350 cannot be moved: ` +
			`the program may read its note "App" of type 0x1`},
		{"unknown, ET_EXEC", gcc + own + "-no-pie " + program, ""},
		{"unknown, static", gcc + own + "-static " + program, ""},
		{"unknown, static, lld", gcc + own + "-static " + lld + program, ""},
		{"unknown, static, mold", gcc + own + "-static " + mold + program, ""},
		{"unknown, static, no separate code", gcc + own + "-static -Wl,-z,noseparate-code " + program, ""},
		{"unknown, static-pie", gcc + own + "-static-pie -fPIE " + program, `its note "App" of type 0x1`},
		{"unknown, library", gcc + own + library, `its note "App" of type 0x1`},
		{"unknown, library, lld", gcc + own + lld + library, `its note "App" of type 0x1`},
		{"unknown, library, mold", gcc + own + mold + library, `its note "App" of type 0x1`},
		{"unknown, library, mold, spare headers", gcc + own + mold + "-Wl,--spare-program-headers=2 " + library, ""},
		{"unknown, separate PT_NOTE, PIE", gcc + own + large + program, ""},
		{"unknown, separate PT_NOTE, PIE, lld", gcc + own + large + lld + program, ""},
		{"unknown, separate PT_NOTE, library", gcc + own + large + library, `its note "App" of type 0x1`},
		{"package, pointer to it, PIE", gcc + pack + "-DREACH=DATA " + program, "refers"},
		{"package, pointer to it, library", gcc + pack + "-DREACH=DATA " + library, "refers"},
		{"package, symbol, library", gcc + pack + "-DREACH=SYMBOL " + library, "refers"},
		{"package, --emit-relocs, library", gcc + pack + "-DREACH=CODE -Wl,--emit-relocs " + library,
			"refers"},
		{"package, relative relocations, packed", gcc + pack + "-DREACH=DATA -Wl,-z,pack-relative-relocs " + library,
			"refers"},
		{"package, __start_ symbol of the section", gcc + "-DKIND=PACKAGE -DREACH=START -DSECTION=package_note -s " +
			library, "__start_ and __stop_ symbols"},
		{"package, nothing refers to it", gcc + pack + "-DREACH=NONE " + library, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if i%4 > 0 {
				long.Test(t)
			}
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
			copyFile(t, out, in)
			peer.Again(t, "sid", dir, "./prog >after")
			before, after := testfile.Read(t, filepath.Join(dir, "before")),
				testfile.Read(t, filepath.Join(dir, "after"))
			if !bytes.Equal(before, after) {
				t.Errorf("printed\n%s\nexpected\n%s", after, before)
			}
		})
	}
}

// copyFile copies a file over another file.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	must.Do(t, os.WriteFile(to, testfile.Read(t, from), 0o777))
}
