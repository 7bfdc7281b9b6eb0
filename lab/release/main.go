// Package release writes what a Go program is made of, as CycloneDX 1.6 in JSON, from what Go has noted in the program.
package release

import (
	"debug/buildinfo"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("release", "VERSION PROGRAM", 2, 2)
	c.Run = func(args []string) error { return write(os.Stdout, args[0], args[1]) }
	return c
}

// write writes what a program is made of.
func write(w io.Writer, version, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	return encoder.EncodeVersion(describe(version, info), cyclonedx.SpecVersion1_6)
}

// describe returns what a program of a version is made of: its modules, and the standard library.
func describe(version string, info *debug.BuildInfo) *cyclonedx.BOM {
	var properties []cyclonedx.Property
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			properties = append(properties, cyclonedx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	main := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: version,
		BOMRef:   info.Main.Path + "@" + version,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "BSD-3-Clause"}}}, Properties: &properties,
	}
	var parts []cyclonedx.Component
	var on []string
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
		parts = append(parts, cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: path, Version: version, PackageURL: url,
		})
		on = append(on, url)
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version)
	}
	b := cyclonedx.NewBOM()
	b.Metadata = &cyclonedx.Metadata{Component: &main}
	b.Components = &parts
	b.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &on}}
	return b
}
