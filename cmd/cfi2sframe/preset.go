package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// A preset holds the format for a reader, and what else the reader supports.
type preset struct {
	name string
	convert.Format
	share bool             // reads shared FRE lists in either byte order
	also  []convert.Format // other formats it reads
	linux convert.Linux    // the Linux reader, if any
	// noPCMask is set if sframe_find_fre of its libsframe finds no rows, or wrong ones, in PC-mask FDEs.
	noPCMask bool
}

var (
	v2      = convert.Format{Version: sframe.V2}
	v2PCRel = convert.Format{Version: sframe.V2, PCRel: true}
	v3      = convert.Format{Version: sframe.V3}
)

// presets are the readers that --for accepts. See docs/readers.md.
var presets = []preset{
	// glibc 2.42 and later, built with --enable-sframe, reads V2 only, treats code without a row as the outermost
	// frame, and fails on rows without data words.
	{name: "glibc", Format: v2, share: true, also: []convert.Format{v2PCRel}},
	// The patches for deferred unwinding accept only V3, sorted, with start addresses relative to their own fields.
	{name: "linux", Format: v3, share: true, linux: convert.LinuxUser},
	{name: "perf", Format: v3, share: true, linux: convert.LinuxUser}, // needs the same patches
	// The patches for arm64 live patching do not handle flexible FDEs; see convert.Linux.
	{name: "linux-kernel", Format: v3, share: true, linux: convert.LinuxKernel},
	{name: "linux-module", Format: v3, share: true, linux: convert.LinuxModule},
	// GNU as and ld 2.40 support only V1.
	{name: "binutils-2.40", Format: convert.Format{Version: sframe.V1}},
	// libsframe 2.41 to 2.44 rejects flag 0x4 ("decode failure"), and returns FP-1 as the CFA of rows without data
	// words.
	{name: "binutils-2.41", Format: v2, noPCMask: true},
	{name: "binutils-2.42", Format: v2, noPCMask: true},
	{name: "binutils-2.43", Format: v2, noPCMask: true},
	{name: "binutils-2.44", Format: v2, noPCMask: true},
	// GNU as 2.45 emits, and ld 2.45 merges, V2 with errata 1. Errata 2 is newer.
	{name: "binutils-2.45", Format: v2PCRel, also: []convert.Format{v2}},
	// Since 2.46, ld merges only V3, and libsframe finds wrong rows in V2 without flag 0x4.
	{name: "binutils-2.46", Format: v3, also: []convert.Format{v2PCRel}},
	{name: "binutils-2.47", Format: v3, also: []convert.Format{v2PCRel}},
	// DataDog's reader rejects flag 0x4.
	{name: "java-profiler", Format: v2},
}

// presetNames lists all presets.
var presetNames = namesOf(presets)

// namesOf lists presets. Consecutive releases of binutils become a range.
func namesOf(some []preset) string {
	var names []string
	for i, p := range some {
		_, release := strings.CutPrefix(p.name, "binutils-")
		switch {
		case release && i > 0 && strings.HasPrefix(names[len(names)-1], "binutils-"):
			first, _, _ := strings.Cut(names[len(names)-1], " ")
			names[len(names)-1] = first + " to " + p.name
		default:
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

// reader describes the reader.
func (p *preset) reader() *convert.Reader {
	return &convert.Reader{Formats: append(slices.Clone(p.also), p.Format), NoPCMask: p.noPCMask, Linux: p.linux}
}

// refusing returns the names of the presets whose readers refuse the section of a converted file.
func refusing(d *convert.Details) (names []string, err error) {
	s, err := d.Section()
	if s == nil || err != nil {
		return nil, err
	}
	why := ""
	for i := range presets {
		r := presets[i].reader()
		if r.Linux > convert.LinuxUser {
			continue
		}
		if i == 0 || !reflect.DeepEqual(r, presets[i-1].reader()) { // the same reader by another name
			if why, err = r.Refusal(d.File, s, d.Facts.Format); err != nil {
				return nil, err
			}
		}
		if why != "" {
			names = append(names, presets[i].name)
		}
	}
	return names, nil
}

// readersOf lists the readers that support a format, except for some.
func readersOf(f convert.Format, except []string) string {
	if l, ok := f.Version.Layout(); ok && l.PCRel { // implied by this version
		f.PCRel, f.Outermost = false, false
	}
	unable := func(p preset) bool {
		return p.Format != f && !slices.Contains(p.also, f) || p.linux > convert.LinuxUser ||
			slices.Contains(except, p.name)
	}
	return cmp.Or(namesOf(slices.DeleteFunc(slices.Clone(presets), unable)), "none of the readers of --for")
}

// presetWords returns all names.
func presetWords() []string {
	var words []string
	for _, p := range presets {
		words = append(words, p.name)
	}
	return words
}

// findPreset returns the preset for the value of --for.
func findPreset(reader string) (preset, error) {
	for _, p := range presets {
		if p.name == reader {
			return p, nil
		}
	}
	return preset{}, fmt.Errorf("--for: unknown reader %q; use one of %s", reader, presetNames)
}

// apply sets the flags of a preset, and rejects flags that contradict it.
func (p *preset) apply(flags *pflag.FlagSet) error {
	l, _ := p.Version.Layout()
	for _, f := range []struct {
		name, value string
		set         bool // selected by the flag, not implied by V3
	}{
		{"format", strconv.Itoa(int(p.Version)), true},
		{"pcrel", strconv.FormatBool(p.PCRel || l.PCRel), !l.PCRel},
		{"outermost", strconv.FormatBool(p.Outermost || l.Outermost), !l.Outermost},
	} {
		flag := flags.Lookup(f.name)
		if got := flag.Value.String(); flag.Changed && got != f.value {
			return fmt.Errorf("--for %s and --%s=%s cannot be combined; this reader requires --%s=%s",
				p.name, f.name, got, f.name, f.value)
		}
		if !f.set {
			continue
		}
		if err := flag.Value.Set(f.value); err != nil {
			return err
		}
	}
	if share := flags.Lookup("share"); p.share && !share.Changed {
		return share.Value.Set(convert.ShareOn.String())
	}
	return nil
}
