//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner"
)

// installLinks checks every place first, so that it makes all links or none.
func installLinks(dir string, force bool) error {
	target, err := llama.Self()
	if err != nil {
		return err
	}
	names, err := runner.ProgramNames()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("there is nothing to link to: %s has no programs of llama.cpp; build them, or use "+
			"a llama.cpp that has them with make LLAMA_PREFIX=…", runner.ProgramDir())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the links: %w: give another one", err)
	}
	if sameFile(dir, runner.ProgramDir()) {
		return fmt.Errorf("%s is the folder of llama.cpp's own programs, which the links need: give another one", dir)
	}
	links := make([]link, len(names))
	var strangers []string
	for i, name := range names {
		links[i] = link{path: filepath.Join(dir, name), target: target}
		if err := links[i].inspect(); err != nil {
			return err
		}
		if links[i].found == foreign {
			strangers = append(strangers, links[i].path)
		}
	}
	if len(strangers) > 0 && !force {
		return fmt.Errorf(
			"not links to llamatap, and left alone with everything else: %s; give another folder, or --force to "+
				"replace them", strings.Join(strangers, ", "))
	}
	return makeLinks(links, dir)
}

func makeLinks(links []link, dir string) error {
	var count [foreign + 1]int
	for _, l := range links {
		if err := l.make(); err != nil {
			return err
		}
		count[l.found]++
	}
	present.Printf("%s: %s to %s: %d new, %d led here already, %d led to another llamatap", dir,
		present.Plural(len(links), "link"),
		links[0].target, count[absent], count[current], count[elsewhere])
	if count[foreign] > 0 {
		present.Printf(", %s replaced", present.Plural(count[foreign], "file"))
	}
	present.Println()
	if !inPath(dir) {
		present.Printf("%s is not in PATH: put it before the folder of llama.cpp's programs\n", dir)
	}
	return nil
}

// What stands where a link is to be.
type place uint8

const (
	absent    place = iota
	current         // a link to this binary
	elsewhere       // a link to another llamatap, or to one that is gone
	foreign         // anything else
)

// link is one link to make.
type link struct {
	path, target string
	found        place
}

// inspect reads the current state of the path. A folder is an error, because it is never replaced.
func (l *link) inspect() error {
	info, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.found = absent
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder: give another place for the links", l.path)
	}
	to, err := os.Readlink(l.path)
	switch {
	case err != nil || filepath.Base(to) != "llamatap" && !sameFile(l.path, l.target):
		l.found = foreign
	case to == l.target:
		l.found = current
	default:
		l.found = elsewhere
	}
	return nil
}

// make puts the link in its place in one step, so that whoever starts the program meanwhile finds the old one or
// the new.
func (l *link) make() error {
	if l.found == current {
		return nil
	}
	temporary := fmt.Sprintf("%s.new-%d", l.path, os.Getpid())
	if err := os.Symlink(l.target, temporary); err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	if err := os.Rename(temporary, l.path); err != nil {
		os.Remove(temporary)
		return fmt.Errorf("make a link: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// inPath reports whether PATH has a folder.
func inPath(dir string) bool {
	for _, in := range filepath.SplitList(os.Getenv("PATH")) {
		if sameFile(in, dir) {
			return true
		}
	}
	return false
}
