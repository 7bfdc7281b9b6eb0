package convert_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestReader checks which formats readers accept, and why they reject others.
func TestReader(t *testing.T) {
	v1, v2 := convert.Format{Version: sframe.V1}, convert.Format{Version: sframe.V2}
	v3 := convert.Format{Version: sframe.V3}
	pcrel, outermost := v2, v2
	pcrel.PCRel, outermost.Outermost = true, true
	for _, tt := range []struct {
		name   string
		opt    convert.Options
		reader convert.Reader
		want   string
	}{
		{"undefra", convert.Options{Version: sframe.V1}, convert.Reader{Formats: []convert.Format{v1}}, ""},
		{"undefra", convert.Options{Version: sframe.V3}, convert.Reader{Formats: []convert.Format{v1, v3}}, ""},
		{"undefra", convert.Options{Version: sframe.V3}, convert.Reader{Formats: []convert.Format{v2}}, "it is V3"},
		{"undefra", convert.Options{Version: sframe.V2, PCRel: true}, convert.Reader{Formats: []convert.Format{v2}},
			"it is V2 with start addresses relative to their own fields"},
		{"undefra", convert.Options{Version: sframe.V2, PCRel: true},
			convert.Reader{Formats: []convert.Format{pcrel}}, ""},
		{"undefra", convert.Options{Version: sframe.V2, Outermost: true}, convert.Reader{Formats: []convert.Format{v2}},
			"it is V2 with rows for code without a caller"},
		{"undefra", convert.Options{Version: sframe.V2, Outermost: true},
			convert.Reader{Formats: []convert.Format{outermost}}, ""},
		{"plt", convert.Options{Version: sframe.V2}, convert.Reader{Formats: []convert.Format{v2}, NoPCMask: true},
			"FDE 1 at 0x520 has a PC mask, which the reader does not support"},
		{"plt", convert.Options{Version: sframe.V2, NoPCMask: true},
			convert.Reader{Formats: []convert.Format{v2}, NoPCMask: true}, ""},
	} {
		f := elftest.Parse(t, converted(t, tt.name, tt.opt))
		section := must.Get(convert.ReadSection(f))(t)
		format := must.Get(convert.FormatOf(section))(t)
		if got, err := tt.reader.Refusal(f, section, format); err != nil || got != tt.want {
			t.Errorf("%s with %+v: %q, %v; want %q", tt.name, tt.opt, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		format convert.Format
		linker string // a linker that merges sections of the format, or ""
	}{{v1, ""}, {v2, "GNU ld 2.41 to 2.44"}, {pcrel, "GNU ld 2.45"}, {v3, "mold 3"}} {
		if got := tt.format.Mergers(); (len(got) == 0) != (tt.linker == "") ||
			tt.linker != "" && !slices.Contains(got, tt.linker) {
			t.Errorf("%v is merged by %v; want %q", tt.format, got, tt.linker)
		}
	}
}

// TestSeparate detaches and attaches sections. It expects errors for files that cannot have or do not need a separate
// section, and for separate files that do not match.
func TestSeparate(t *testing.T) {
	prog := testfile.Read(t, filepath.Join(fixtures, "amd64/plt"))
	alone, _ := must.Two(runBytes(prog, detach(convert.Options{})))(t)
	ibt := testfile.Read(t, filepath.Join(fixtures, "amd64/plt-ibt"))
	other, _ := must.Two(runBytes(ibt, detach(convert.Options{})))(t)
	d, at := sectionOf(t, alone, ".sframe")
	first := must.Get(sframe.Decode(d, at.Addr))(t)
	const header, fde, attribute = 28, 16, 5 // sizes in V3; an FRE starts with its start address and an info byte
	wrong := bytes.Clone(alone)
	wrong[at.Offset+header+fde*uint64(first.Len())+attribute+2] += 8 // the CFA
	object, with := elftest.NewObject().Bytes(), converted(t, "plt", convert.Options{})
	byBuildID := func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		return convert.Detach(ctx, run, 1<<10, convert.Options{})
	}
	failing := errors.New("it cannot be opened")
	attachBy := func(open convert.Opener) job { return attachWith(open, convert.Options{}) }
	for _, tt := range []struct {
		name string
		b    []byte
		job  job
		stay convert.Reason // reason if unsupported files are skipped, or ""
		want string         // part of the error otherwise
	}{
		{"detach from an object", object, detach(convert.Options{}), convert.NotLinked, "neither a program nor"},
		{"detach from an archive", ar(object), detach(convert.Options{}), convert.NotLinked, "neither a program nor"},
		{"detach from a converted file", with, detach(convert.Options{}), convert.Exists, "already has an .sframe"},
		{"detach by a longer build-id", prog, byBuildID, convert.NoBuildID, "it has no build-id"},
		{"attach to an object", object, attach(alone), convert.NotLinked, "neither a program nor"},
		{"attach to a converted file", with, attach(alone), convert.Exists, "already has an .sframe"},
		{"attach nothing", prog, attachBy(func(*elffile.File) (*convert.Companion, error) { return nil, nil }),
			convert.NoSFrame, "no .sframe for its build-id"},
		{"attach a file that cannot be opened", prog,
			attachBy(func(*elffile.File) (*convert.Companion, error) { return nil, failing }), "", failing.Error()},
		{"attach the section of a different program", prog, attach(other), "", "detached .sframe detached: "},
		{"attach wrong rows", prog, attach(wrong), "", "does not match this file"},
		{"attach a program", prog, attach(prog), "", "it has no .note.cfi2sframe"},
	} {
		if _, res, err := runBytes(tt.b, tt.job); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v; want %q", tt.name, res, err, tt.want)
		}
		got, res, err := runBytes(tt.b, skip(tt.job))
		if tt.stay == "" && err == nil ||
			tt.stay != "" && (err != nil || res.Stays != tt.stay || string(got) != string(tt.b)) {
			t.Errorf("%s, skipped: %+v, %v; want %q", tt.name, res, err, tt.stay)
		}
	}
	force := attachWith(companion(bytes.NewReader(alone), int64(len(alone))), convert.Options{Force: true})
	for _, old := range [][]byte{prog, with} {
		if got, _, err := runBytes(old, force); err != nil || string(got) != string(with) {
			t.Errorf("attached, the file differs: %v", err)
		}
	}
	if _, res, err := runBytes(with, detach(convert.Options{Force: true})); err != nil || res.Stays != "" {
		t.Errorf("detached with Force: %+v, %v", res, err)
	}
}

// TestOtherFiles expects errors, or reasons why Linux rejects a section, for files to which the options do not apply.
func TestOtherFiles(t *testing.T) {
	prog := testfile.Read(t, filepath.Join(fixtures, "amd64/plt"))
	v3 := converted(t, "plt", convert.Options{Version: sframe.V3})
	f := elftest.Parse(t, v3)
	section := must.Get(convert.ReadSection(f))(t)
	const notModule = "a module must be a relocatable object with .sframe"
	if why := refusal(t, v3, convert.LinuxModule); why != notModule {
		t.Errorf("a program as a module: %q", why)
	}
	user := converted(t, "plt", convert.Options{Version: sframe.V3, Linux: convert.LinuxUser})
	if why := refusal(t, user, convert.LinuxUser); why != "" || !bytes.Equal(user, v3) {
		t.Errorf("a program with one segment of code: %q, or other bytes than without Linux", why)
	}
	p := elftest.Patch(t.Fatalf, v3)
	p.Put32(p.Segment(elf.PT_LOAD, 0)+4, uint32(elf.PF_R)) // p_flags of the code
	if why := refusal(t, p.B, convert.LinuxUser); !strings.Contains(why, "is outside the text") {
		t.Errorf("code that is not executable: %q", why)
	}
	if _, err := convert.LinuxKernel.Refusal(f, section); err == nil ||
		!strings.Contains(err.Error(), "no symbols _stext") {
		t.Errorf("a program as a kernel: %v", err)
	}
	if _, err := convert.FindSection(f, "no:symbols"); err == nil ||
		!strings.Contains(err.Error(), "no symbols no and") {
		t.Errorf("no such symbols: %v", err)
	}
	object, _ := must.Two(inMemory(elftest.NewObject().Bytes(), convert.Options{Version: sframe.V3}))(t)
	rows := must.Get(convert.ReadSection(elftest.Parse(t, object)))(t)
	const machine = 18 // offset of e_machine
	p = elftest.Patch(t.Fatalf, object)
	p.Put16(machine, uint16(elf.EM_RISCV))
	if why, err := convert.LinuxModule.Refusal(elftest.Parse(t, p.B), rows); err != nil ||
		why != "machine EM_RISCV has no SFrame ABI" {
		t.Errorf("an unsupported machine: %q, %v", why, err)
	}
	var out bytes.Buffer
	again := convert.Options{Version: sframe.V3, Update: true}
	if res, err := convert.Convert(t.Context(), bytes.NewReader(object), int64(len(object)), &out, again); err != nil ||
		res.Stays != convert.Current || !bytes.Equal(out.Bytes(), object) {
		t.Errorf("a file that is up to date: %+v, %v", res, err)
	}
	if text := convert.Reason("other").Text(); text != "" {
		t.Errorf("an unknown reason is %q", text)
	}
	alone, _ := must.Two(runBytes(prog, detach(convert.Options{})))(t)
	failing := errors.New("it cannot be opened")
	closed := convert.Options{Debug: func(*elffile.File) (*convert.Companion, error) { return nil, failing }}
	if _, res, err := inMemory(prog, closed); !errors.Is(err, failing) {
		t.Errorf("a debug file that cannot be opened: %+v, %v", res, err)
	}
	damaged := converted(t, "prologue", convert.Options{Version: sframe.V2, Share: convert.ShareOff})
	_, in := sectionOf(t, damaged, ".sframe")
	damaged[int(in.Offset)+28+20*int(damaged[in.Offset+8])+1] = 0x63 // info byte with an undefined word size
	section = must.Get(convert.ReadSection(elftest.Parse(t, damaged)))(t)
	if format, err := convert.FormatOf(section); err == nil {
		t.Errorf("a damaged row: %v", format)
	}
	for name, opt := range map[string]convert.Options{
		"a debug file that cannot be opened": {
			Debug: func(*elffile.File) (*convert.Companion, error) { return nil, failing },
		},
		"no CFI from that source": {Source: cfi.DebugFrame},
	} {
		section := companion(bytes.NewReader(alone), int64(len(alone)))
		_, res, err := runBytes(prog, attachWith(section, opt))
		if !errors.Is(err, failing) && !errors.Is(err, cfi.ErrNone) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

// TestScratchFails updates an object while the directory for temporary files does not exist.
func TestScratchFails(t *testing.T) {
	object, _ := must.Two(inMemory(elftest.NewObject().Bytes(), convert.Options{}))(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	run := &convert.Run{In: bytes.NewReader(object), Size: int64(len(object))}
	if res, err := convert.Add(t.Context(), run, convert.Options{Update: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%+v, %v", res, err)
	}
}
