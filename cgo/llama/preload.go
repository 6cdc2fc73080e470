package llama

import (
	"path/filepath"
	"slices"
	"strings"
)

// Preload returns an environment in which loaders load a library, such as the tap, before those that it names already.
func Preload(env []string, library string) []string {
	list, folder := Preloaded(library)
	env = putFirst(env, "LD_PRELOAD", list)
	if folder != "" {
		env = AddLibraryPath(env, folder)
	}
	return env
}

// Preloaded is how a library to preload is named to a loader. Its list is separated by spaces, too: a path with some is
// the name alone, and a folder that is to be added to the library path, where spaces separate nothing.
func Preloaded(library string) (name, folder string) {
	if strings.Contains(library, " ") {
		return filepath.Base(library), filepath.Dir(library)
	}
	return library, ""
}

// AddLibraryPath puts folders before those in which loaders look for libraries.
func AddLibraryPath(env []string, path string) []string {
	return putFirst(env, "LD_LIBRARY_PATH", path)
}

// putFirst puts something before what a variable lists. Of several entries of one variable the last holds.
func putFirst(env []string, variable, list string) []string {
	before := ""
	isOne := func(entry string) bool {
		value, ok := strings.CutPrefix(entry, variable+"=")
		if ok {
			before = value
		}
		return ok
	}
	env = slices.DeleteFunc(slices.Clone(env), isOne) // exec(2) keeps all of them
	if before != "" {
		list += ":" + before
	}
	return append(env, variable+"="+list)
}
