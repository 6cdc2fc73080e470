//go:build linux

package session

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/jsonl"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// A resumed run begins anew, and what is recorded beside its stream is recorded anew with it, from the
// beginning, so that no event is there twice. What there was stays aside until the run has come as far as it was.

// asideFiles calls do with the names of what is recorded beside the stream of a run, there or not, up to the last
// part that is.
func asideFiles(folder string, do func(name string) error) error {
	names := append(slices.Collect(maps.Values(hostFiles)), track.FileName, rundir.WaitsName, rundir.FaultsName)
	for part := 0; ; part++ {
		name := jsonl.PartName(rundir.EventsName, part)
		if !there(filepath.Join(folder, name)) && !there(filepath.Join(folder, name+stream.OrigSuffix)) {
			break
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := do(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// putBesideAside makes way for what is recorded anew. What was put aside by a run that was interrupted before it
// had come as far is more.
func putBesideAside(folder string) error {
	return asideFiles(folder, func(path string) error {
		if there(path + stream.OrigSuffix) {
			return os.Remove(path)
		}
		return os.Rename(path, path+stream.OrigSuffix)
	})
}

// dropAside removes what was put aside.
func dropAside(folder string) error {
	return asideFiles(folder, func(path string) error { return os.Remove(path + stream.OrigSuffix) })
}
