package main

import "runtime/debug"

// release is the version that this tree is, or leads to. CHANGELOG.md and CITATION.cff name the same one.
const release = "v0.1.0"

// commit is the commit that the program was built from; scripts/package sets it. Without it, version asks Go.
var commit string

// version is what 'llamatap version' prints and what recordings keep: the release, and after a + the commit where the
// build knows it, with .dirty where files differed from it.
var version = release + metadata()

func metadata() string {
	c, dirty := commit, ""
	if info, ok := debug.ReadBuildInfo(); c == "" && ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				c = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = ".dirty"
			}
		}
	}
	if c == "" {
		return ""
	}
	return "+" + c + dirty
}
