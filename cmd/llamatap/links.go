//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	places, count := make([]place, len(names)), [foreign + 1]int{}
	var strangers []string
	for i, name := range names {
		path := filepath.Join(dir, name)
		if places[i], err = lookAt(path, target); err != nil {
			return err
		}
		if count[places[i]]++; places[i] == foreign {
			strangers = append(strangers, path)
		}
	}
	if len(strangers) > 0 && !force {
		return fmt.Errorf(
			"not links to llamatap, and left alone with everything else: %s; give another folder, or --force to "+
				"replace them", strings.Join(strangers, ", "))
	}
	for i, name := range names {
		if places[i] == current {
			continue
		}
		if err := makeLink(filepath.Join(dir, name), target); err != nil {
			return err
		}
	}
	present.Printf("%s: %s to %s: %d new, %d led here already, %d led to another llamatap", dir,
		present.Plural(len(names), "link"), target, count[absent], count[current], count[elsewhere])
	if count[foreign] > 0 {
		present.Printf(", %s replaced", present.Plural(count[foreign], "file"))
	}
	present.Println()
	isDir := func(folder string) bool { return sameFile(folder, dir) }
	if !slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), isDir) {
		present.Printf("%s is not in PATH: put it before the folder of llama.cpp's programs\n", dir)
	}
	return nil
}

// place is what there is where a link is to be.
type place uint8

const (
	absent    place = iota
	current         // a link to this binary
	elsewhere       // a link to another llamatap, or to one that is gone
	foreign         // anything else
)

// lookAt reads what there is at a path. A folder is an error, because it is never replaced.
func lookAt(path, target string) (place, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return foreign, err
	case info.IsDir():
		return foreign, fmt.Errorf("%s is a folder: give another place for the links", path)
	}
	to, err := os.Readlink(path)
	switch {
	case err != nil || filepath.Base(to) != "llamatap" && !sameFile(path, target):
		return foreign, nil
	case to == target:
		return current, nil
	}
	return elsewhere, nil
}

// makeLink puts a link in its place in one step, so that whoever starts the program meanwhile finds the old one or the
// new.
func makeLink(path, target string) error {
	temporary := fmt.Sprintf("%s.new-%d", path, os.Getpid())
	err := os.Symlink(target, temporary)
	if err == nil {
		if err = os.Rename(temporary, path); err != nil {
			os.Remove(temporary)
		}
	}
	if err != nil {
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
