package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// StateFolder is the folder of an unfinished run in which its program keeps states that it can be resumed from. Each is
// two files: that of llama.cpp's memory, and, in its place when that is on the disk, what there is beside it.
const StateFolder = "state"

// newStates is how the folder begins that a run's states are in until it has a directory.
const newStates = ".state-"

// NewStateFolder makes the folder of a new run's states in the output folder; it is moved into the run directory
// when there is one. Folders of runs that were killed before are removed.
func NewStateFolder(out string) (string, error) {
	RemoveStateFolders(out)
	for {
		path, err := os.MkdirTemp(out, newStates)
		if err != nil || lockState(path) {
			return path, err
		}
	}
}

// RemoveStateFolders removes the folders of states in an output folder whose process was killed before it had a run
// directory.
func RemoveStateFolders(out string) (removed []string) {
	entries, _ := os.ReadDir(out) // another time, if not now
	for _, e := range entries {
		if path := filepath.Join(out, e.Name()); e.IsDir() && stateForm.MatchString(e.Name()) && lockState(path) &&
			os.RemoveAll(path) == nil {
			removed = append(removed, path)
		}
	}
	return removed
}

var stateForm = regexp.MustCompile(`^\.state-[0-9]+$`)

const (
	statePrefix = "state-"
	stateSuffix = ".json"
)

// StatePaths are the files of the state after so many tokens.
func StatePaths(folder string, tokens int64) (state, memory string) {
	path := filepath.Join(folder, statePrefix+strconv.FormatInt(tokens, 10))
	return path + stateSuffix, path + ".memory"
}

// States lists after how many tokens there are states in a folder, the latest first.
func States(folder string) (tokens []int64) {
	entries, _ := os.ReadDir(folder) // there is none, then
	for _, e := range entries {
		number, named := strings.CutPrefix(e.Name(), statePrefix)
		number, ended := strings.CutSuffix(number, stateSuffix)
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && named && ended {
			tokens = append(tokens, n)
		}
	}
	slices.Sort(tokens)
	slices.Reverse(tokens)
	return tokens
}

// RemoveState removes one. Its memory goes last, so that every state that is there has one.
func RemoveState(folder string, tokens int64) error {
	state, memory := StatePaths(folder, tokens)
	return errors.Join(os.Remove(state), os.Remove(memory))
}
