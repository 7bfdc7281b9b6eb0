package survey

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/translate"
)

// surveyOfLosses is a survey of files that lose some bytes by reason: 1,000 are described in each. nil is a file
// without CFI.
func surveyOfLosses(tool string, settings Settings, files map[string]gapsOf) *Survey {
	var records []Record
	for name, gaps := range files {
		r := Record{File: name, ABI: "amd64", Status: convert.NoCFI, WithoutCFI: 1000, Code: 900}
		if gaps != nil {
			r = Record{File: name, ABI: "amd64", Functions: 10, Described: 1000, Code: 1100}
			lost := uint64(0)
			for _, reason := range translate.Reasons() {
				if gaps[reason] > 0 {
					r.Gaps = append(r.Gaps, Gap{Reason: reason.Name(), Functions: 1, Ranges: 2, Bytes: gaps[reason]})
					lost += gaps[reason]
				}
			}
			for _, v := range Formats {
				f := Format{Format: v, Whole: 9, Covered: 1000 - lost, Unwindable: 1100 - lost}
				r.Formats = append(r.Formats, f)
			}
		}
		records = append(records, r)
	}
	return surveyOf(Options{Tool: tool, Settings: settings}, "pool", records...)
}

type gapsOf = map[translate.Reason]uint64

// sample is a survey and one of some time later.
func sample(settings Settings) (old, now *Survey) {
	old = surveyOfLosses("cfi2sframe 1", settings, map[string]gapsOf{
		"pool/a": {translate.DRAP: 100, translate.CFARegister: 20, translate.Outermost: 500},
		"pool/b": {translate.DRAP: 50}, "pool/c": {translate.SPRule: 1},
		"pool/gone": {translate.DRAP: 7}, "pool/fixed": nil, "pool/broken": {translate.DRAP: 5}, "pool/none": nil,
		"pool/x/x_1.0-1_amd64.deb!usr/lib/libx.so.1":   {translate.DRAP: 30},
		"pool/x/x_1.0-1_amd64.deb!usr/lib/libx.so.1.0": {translate.DRAP: 4},
		"pool/x/x_1.0-1_arm64.deb!usr/lib/libx.so.1":   {translate.DRAP: 6},
		"pool/y-z-1.0-1.fc40.x86_64.rpm!usr/bin/y":     {translate.DRAP: 11},
	})
	now = surveyOfLosses("cfi2sframe 2", settings, map[string]gapsOf{
		"pool/a": {translate.DRAP: 50, translate.CFARegister: 30, translate.Outermost: 1},
		"pool/b": {translate.DRAP: 50, translate.CFARegister: 30}, "pool/c": {translate.SPRule: 1},
		"pool/new": {translate.DRAP: 9}, "pool/fixed": {translate.DRAP: 5}, "pool/broken": nil, "pool/none": nil,
		"pool/w/x_2.0-1_amd64.deb!usr/lib/libx.so.1":   {translate.DRAP: 10},
		"pool/w/x_2.0-1_amd64.deb!usr/lib/libx.so.2.0": {translate.DRAP: 3},
		"pool/w/x_2.0-1_arm64.deb!usr/lib/libx.so.1":   {translate.DRAP: 6},
		"pool/y-z-1.1-3.fc41.x86_64.rpm!usr/bin/y":     {translate.DRAP: 12},
	})
	return old, now
}

// saved writes a survey to a file.
func saved(t *testing.T, s *Survey) string {
	t.Helper()
	var b bytes.Buffer
	name := filepath.Join(t.TempDir(), "old.json")
	if err := s.JSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestAgainst expects what can be counted by hand.
func TestAgainst(t *testing.T) {
	old, now := sample(Settings{})
	c, err := now.Against(saved(t, old))
	if err != nil {
		t.Fatal(err)
	}
	const was = "pool/x/x_1.0-1_amd64.deb!usr/lib/libx.so.1"
	for _, tt := range []struct {
		name string
		got  FileChanges
		want string
	}{
		{"better", c.Better, "3 1060 [" +
			"{pool/fixed  1000 no-cfi cfi } " +
			"{pool/a  40   drap} " +
			"{pool/w/x_2.0-1_amd64.deb!usr/lib/libx.so.1 " + was + " 20   drap}]"},
		{"worse", c.Worse, "3 1031 [" +
			"{pool/broken  1000 cfi no-cfi } " +
			"{pool/b  30   cfa-register} " +
			"{pool/y-z-1.1-3.fc41.x86_64.rpm!usr/bin/y pool/y-z-1.0-1.fc40.x86_64.rpm!usr/bin/y 1   drap}]"},
		{"appeared", c.Appeared, "2 12 [{pool/new  9   drap} {pool/w/x_2.0-1_amd64.deb!usr/lib/libx.so.2.0  3   drap}]"},
		{"gone", c.Gone, "2 11 [{pool/gone  7   drap} {pool/x/x_1.0-1_amd64.deb!usr/lib/libx.so.1.0  4   drap}]"},
	} {
		if got := fmt.Sprintf("%d %d %v", tt.got.Files, tt.got.Bytes, tt.got.Worst); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
	if c.Same != 3 { // c, none, and that for arm64
		t.Errorf("%d files are the same", c.Same)
	}
	if c.Old.Tool != "cfi2sframe 1" || c.New.Tool != "cfi2sframe 2" || c.Old.Total.lost() != 234 ||
		c.New.Total.lost() != 206 {
		t.Errorf("old: %+v\nnew: %+v", c.Old, c.New)
	}
	var text bytes.Buffer
	if err := c.Write(&text, "text"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Comparison: 11 ELF files, 9 of them with CFI; before 11, 9 of them with CFI\n",
		"Before by cfi2sframe 1, now by cfi2sframe 2: figures of other versions may have another meaning.\n",
		"\n  lost by format 2                 234     206     -28\n",
		"\n  V2         9,166  9,693    +527       78.34 %  82.85 %\n",
		"\n  better         3  1,060\n", "\n  V2           90.00 %  90.00 %  0       91.84 %  97.70 %  +527\n",
		"\n  amd64            11   11       0             9,000  9,000       0          234  206     -28\n",
		"\n  cfa-register             1    2      +1                 1    2      +1            20   60     +40  CFA based on ",
		"\n  1,000                pool/broken ", "  cfi before, no-cfi now\n",
		"  was " + was + "\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
}

// TestAgainstSame has nothing to say of the same survey, and nothing but new files where there were none.
func TestAgainstSame(t *testing.T) {
	s := run(t, Options{}, fixtures)
	c, err := s.Against(saved(t, s))
	if err != nil || c.Same != s.Total.Files || c.Better.Files+c.Worse.Files+c.Appeared.Files+c.Gone.Files > 0 ||
		!reflect.DeepEqual(c.Old, c.New) {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = s.Against(saved(t, run(t, Options{Shard: Shard{2, 2}}, t.TempDir())))
	if err != nil || c.Appeared.Files != s.Total.Files || len(c.Appeared.Worst) != maxWorst ||
		!strings.HasPrefix(c.Old.Only, "Only shard 2 of 2 of ") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestAgainstErrors has what cannot be compared.
func TestAgainstErrors(t *testing.T) {
	old, now := sample(Settings{})
	name := saved(t, old)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, others := sample(Settings{Objects: true})
	if _, err := others.Against(name); err == nil ||
		!strings.HasPrefix(err.Error(), name+
			": made without --objects and --packages, but what is compared with it is made with --objects") {
		t.Errorf("other settings: %v", err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"schema":3`, `"schema":2`, "schema 2; this version of cfi2sframe reads schema 3"},
		{`"total":{"files":11`, `"total":{"files":12`, "damaged: 11 files, and a total of 12"},
		{`"total":{"files":11,"with_cfi":9,"functions":90`, `"total":{"files":11,"with_cfi":9,"functions":-90`,
			`cannot unmarshal number -90`},
		{"\n{\"file\":\"pool/a\"", "\n{\"file\":\"\"", `damaged: file "" has a number out of range`},
		{"\n{", "\n[", `offset `},
	} {
		b := bytes.Replace(whole, []byte(tt.old), []byte(tt.new), 1)
		if bytes.Equal(b, whole) {
			t.Fatalf("%q is not in\n%s", tt.old, whole)
		}
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := now.Against(name); err == nil || !strings.HasPrefix(err.Error(), name+": ") ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v; want %q", err, tt.want)
		}
	}
	if _, err := now.Against(name + ".gone"); err == nil {
		t.Error("a survey that is not there is no error")
	}
}

// TestIdentity tells packages from their versions.
func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"a_1_amd64.deb!x", "d/a_2:3~rc1+b2_amd64.deb!x", true},
		{"a_1_amd64.deb!x", "a_1_arm64.deb!x", false},
		{"a_1_amd64.deb!x", "a_1_amd64.deb!y", false},
		{"a_1_amd64.deb!x", "b_1_amd64.deb!x", false},
		{"a_1_amd64.deb", "a_2_amd64.deb", false}, // files of these names
		{"a_1.deb!x", "a_2.deb!x", false},         // is no name of a package
		{"g++-12-1.0-3.x86_64.rpm!x", "e/g++-12-2.0-1.x86_64.rpm!x", true},
		{"g++-12-1.0-3.x86_64.rpm!x", "g++-12-1.0-3.i686.rpm!x", false},
		{"g++-12-1.0-3.x86_64.rpm!x", "g++-1.0-3.x86_64.rpm!x", false},
		{"a.rpm!x", "b.rpm!x", false},
		{"a.tar!x", "d/a.tar!x", false},
	} {
		if got := identity(&Record{File: tt.a}) == identity(&Record{File: tt.b}); got != tt.same {
			t.Errorf("%s and %s: %t; want %t", tt.a, tt.b, got, tt.same)
		}
	}
}
