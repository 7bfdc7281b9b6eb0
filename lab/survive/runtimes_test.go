package survive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestPairwise expects all pairs of choices in what is chosen, and further combinations for those that had no program.
func TestPairwise(t *testing.T) {
	all, tried := combinations(), make(map[combination]*trial)
	want := make(map[pair]bool)
	for i := range axes {
		for j := range i {
			for a := range axes[i] {
				for b := range axes[j] {
					want[pair{j, b, i, a}] = true
				}
			}
		}
	}
	n := len(want)
	for _, c := range pairwise(all, tried) {
		tried[c] = &trial{verdict: survives}
		for _, p := range c.pairs() {
			delete(want, p)
		}
	}
	if len(want) > 0 || len(tried) > n/3 {
		t.Errorf("%d combinations, without the pairs %v", len(tried), want)
	}
	if more := pairwise(all, tried); len(more) > 0 {
		t.Errorf("chosen without need: %v", more)
	}
	// Nothing can be linked statically: each pair with that is tried some times, and then given up.
	const static = 2
	for rounds := 0; ; rounds++ {
		for c, trial := range tried {
			if trial.verdict = survives; c[4] == static {
				trial.verdict = unfit
			}
		}
		more := pairwise(all, tried)
		if len(more) == 0 {
			if rounds != maxTries-1 {
				t.Errorf("%d more rounds", rounds)
			}
			break
		}
		for _, c := range more {
			if tried[c] != nil {
				t.Errorf("%v is tried twice", c)
			}
			tried[c] = &trial{}
		}
	}
}

// TestRuntimesNotice has programs changed by something else than the tool.
func TestRuntimesNotice(t *testing.T) {
	for _, name := range []string{"gcc", "ld.bfd", "setarch"} {
		peer.Look(t, name)
	}
	w, err := newWorkshop(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	w.cfi2sframe = filepath.Join(w.dir, "converter")
	coverage := combination{2, 0, 0, 0, 0}
	m := &matrix{workshop: w}
	const wrapper = `mv $prog $prog.real; echo '#!/bin/sh' >$prog; chmod +x $prog; `
	for _, tt := range []struct{ name, script, want string }{
		{"nothing", "", ""},
		{"a refusal", "echo no >&2; exit 1", "cfi2sframe : exit status 1: no"},
		{"another output", "sed -i 's/stack/slack/' $prog", "converted: output differs at byte "},
		{"another output later", "[ $2 != --remove ] || sed -i 's/stack/slack/' $prog",
			"with the section removed: output differs at byte "},
		{"a crash", wrapper + "echo 'kill -SEGV $$' >>$prog", "converted: signal: segmentation fault"},
		{"another status", wrapper + `echo '"$0.real"; exit 3' >>$prog`, "converted: status differs at byte 12: "},
		{"another file", wrapper + `echo '"$0.real"; echo >>$(ls *.gcda)' >>$prog`,
			"converted: gcc-coverage-fPIE.gcda differs at byte "},
		{"no file", wrapper + `echo '"$0.real"; rm *.gcda' >>$prog`, "converted: gcc-coverage-fPIE.gcda is missing"},
		{"one file more", wrapper + `echo '"$0.real"; echo >new' >>$prog`, "converted: 4 files, were 3"},
	} {
		script := "#!/bin/bash\nprog=${!#}\n" + tt.script + "\n"
		if err := os.WriteFile(w.cfi2sframe, []byte(script), 0o777); err != nil {
			t.Fatal(err)
		}
		got := m.try(t.Context(), coverage)
		want := survives
		if tt.want != "" {
			want = fails
		}
		if got.verdict != want || !strings.HasPrefix(got.why, tt.want) {
			t.Errorf("%s: %v %s", tt.name, got.verdict, got.why)
		}
	}
}
