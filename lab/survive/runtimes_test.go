package survive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestPairwise expects each pair of choices in a combination.
func TestPairwise(t *testing.T) {
	type pair struct{ axis1, choice1, axis2, choice2 int }
	found := make(map[pair]bool)
	want := 0
	for i := range axes {
		for j := range i {
			want += len(axes[i]) * len(axes[j])
			for _, c := range pairwise() {
				found[pair{j, c[j], i, c[i]}] = true
			}
		}
	}
	if len(found) != want {
		t.Errorf("%d pairs, want %d", len(found), want)
	}
}

// TestRuntimesNotice changes programs by scripts instead of cfi2sframe.
func TestRuntimesNotice(t *testing.T) {
	for _, name := range []string{"gcc", "ld.bfd", "setarch"} {
		peer.Look(t, name)
	}
	m := &matrix{dir: t.TempDir()}
	if err := copySources(m.dir); err != nil {
		t.Fatal(err)
	}
	m.cfi2sframe = filepath.Join(m.dir, "converter")
	coverage := combination{2, 0, 0, 0, 0}
	const wrapper = `mv $prog $prog.real; echo '#!/bin/sh' >$prog; chmod +x $prog; `
	for _, tt := range []struct{ name, script, want string }{
		{"nothing", "", ""},
		{"a refusal", "echo no >&2; exit 1", "cfi2sframe -q: exit status 1: no"},
		{"another output", "sed -i 's/stack/slack/' $prog", "converted: output differs at byte "},
		{"another output later", "[ $1 != remove ] || sed -i 's/stack/slack/' $prog",
			"with the section removed: output differs at byte "},
		{"a crash", wrapper + "echo 'kill -SEGV $$' >>$prog", "converted: signal: segmentation fault"},
		{"another status", wrapper + `echo '"$0.real"; exit 3' >>$prog`, "converted: status differs at byte 12: "},
		{"another file", wrapper + `echo '"$0.real"; echo >>$(ls *.gcda)' >>$prog`,
			"converted: gcc-coverage-fPIE.gcda differs at byte "},
		{"no file", wrapper + `echo '"$0.real"; rm *.gcda' >>$prog`, "converted: gcc-coverage-fPIE.gcda is missing"},
		{"one file more", wrapper + `echo '"$0.real"; echo >new' >>$prog`, "converted: 4 files, were 3"},
	} {
		script := "#!/bin/bash\nprog=${!#}\n" + tt.script + "\n"
		if err := os.WriteFile(m.cfi2sframe, []byte(script), 0o777); err != nil {
			t.Fatal(err)
		}
		err := m.compare(coverage)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
