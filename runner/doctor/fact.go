// Package doctor says what a machine lets llamatap record, one fact a line.
//
// Facts are read below a file system root that the caller names, so that tests hand in trees of other machines. What cannot be
// determined is Unknown with the reason in Value, never guessed.
package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Status says how a fact stands.
type Status string

// The states of a fact.
const (
	OK      Status = "ok"
	Missing Status = "missing"
	Limited Status = "limited"
	Unknown Status = "unknown"
)

// A Fact is one line: what was looked at, how it stands, what its absence costs and how to get it.
type Fact struct {
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Value  string `json:"value"`
	Costs  string `json:"costs"`
	Remedy string `json:"remedy"`
}

// Examine returns the facts of the machine whose root directory is root.
func Examine(root fs.FS) []Fact {
	return slices.Concat(kernel(root), capabilities(root), counters(root), cgroups(root))
}

// lacking fills in what the lack of f costs and how to get it.
func (f Fact) lacking(costs, remedy string) Fact {
	if f.Status == Missing || f.Status == Limited {
		f.Costs, f.Remedy = costs, remedy
	}
	return f
}

// present tells whether the file name is there.
func present(root fs.FS, topic, label, name string) Fact {
	_, err := fs.Stat(root, name)
	switch {
	case err == nil:
		return Fact{Topic: topic, Name: label, Status: OK, Value: "/" + name}
	case errors.Is(err, fs.ErrNotExist):
		return Fact{Topic: topic, Name: label, Status: Missing, Value: "no /" + name}
	}
	return Fact{Topic: topic, Name: label, Status: Unknown, Value: err.Error()}
}

// word returns the content of a file without the white space around it.
func word(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b)), err
}
