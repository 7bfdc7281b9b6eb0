package main

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// What a release is built with, as in
//
//	go build -ldflags '-X main.version=1.2 -X main.commit=0123456789ab -X main.date=2026-11-22' ./cmd/cfi2sframe
//
// The version overrides Go's, made from the repository's tags; commit and date are used if Go does not know them.
var version, commit, date string

// commitDigits is the number of digits of a commit, as in Go's own versions.
const commitDigits = 12

// An origin is the source that cfi2sframe was built from; "" is unknown.
type origin struct {
	version, commit, date string
}

// thisBuild returns the origin of this process.
func thisBuild() origin {
	b := origin{version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.of(info)
	}
	b.version, b.commit, b.date = cmp.Or(b.version, "(devel)"), cmp.Or(b.commit, commit), cmp.Or(b.date, date)
	return b
}

// of adds what Go has noted. If another module was built that contains cfi2sframe, that is the version in its go.mod,
// and the noted commit is that of the other module.
func (b *origin) of(info *debug.BuildInfo) {
	for _, m := range info.Deps {
		if strings.HasPrefix(info.Path, m.Path+"/") {
			b.version = cmp.Or(b.version, m.Version)
			return
		}
	}
	if info.Main.Version != "(devel)" {
		b.version = cmp.Or(b.version, info.Main.Version)
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value[:min(len(s.Value), commitDigits)]
		case "vcs.time":
			b.date = s.Value
		case "vcs.modified":
			if s.Value == "true" && b.commit != "" { // the commit is first
				b.commit += "-dirty"
			}
		}
	}
}

// String is the name and the version.
func (b origin) String() string {
	from := strings.Trim(b.commit+", "+b.date, ", ")
	if from != "" {
		from = " (" + from + ")"
	}
	return "cfi2sframe " + b.version + from
}
