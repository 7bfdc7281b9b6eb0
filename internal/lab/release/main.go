// Command release writes what a Go program is made of, as CycloneDX 1.6 in JSON, from what Go has noted in the program.
//
// Usage: release VERSION PROGRAM >FILE
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

// A bom is a software bill of materials.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	URL        string     `json:"purl,omitempty"`
	Licences   []licence  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION PROGRAM")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// write writes what a program is made of.
func write(w io.Writer, version, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(describe(version, info))
}

// describe returns what a program of a version is made of: its modules, and the standard library.
func describe(version string, info *debug.BuildInfo) *bom {
	main := component{Type: "application", Name: info.Main.Path, Version: version, Ref: info.Main.Path + "@" + version}
	var bsd licence
	bsd.License.ID = "BSD-3-Clause"
	main.Licences = []licence{bsd}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			main.Properties = append(main.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	b := &bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{main}}
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
		b.Components = append(b.Components, component{Type: "library", Ref: url, Name: path, Version: version, URL: url})
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version)
	}
	on := make([]string, len(b.Components))
	for i, c := range b.Components {
		on[i] = c.Ref
	}
	b.Dependencies = []dependency{{main.Ref, on}}
	return b
}
