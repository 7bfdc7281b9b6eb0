package main

import (
	"cmp"
	"runtime/debug"
)

// version is set when a release is built:
//
//	go build -ldflags '-X main.version=1.2' ./cmd/cfi2sframe
//
// Otherwise Go derives a version from the repository's tags and commits.
var version string

// thisVersion returns the name and the version of this program.
func thisVersion() string {
	made := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		made = info.Main.Version
	}
	return "cfi2sframe " + cmp.Or(version, made, "(devel)")
}
