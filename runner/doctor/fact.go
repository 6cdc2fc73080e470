package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Status says how a fact stands.
type Status string

// The states of a fact. Limited is there and does less than it could; Unknown could not be determined, and Value
// says why.
const (
	OK      Status = "ok"
	Missing Status = "missing"
	Limited Status = "limited"
	Unknown Status = "unknown"
)

// A Fact is one line: what was looked at, how it stands, what its absence costs and how to get it. Costs and Remedy
// are empty unless it is missing or limited.
type Fact struct {
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Value  string `json:"value"`
	Costs  string `json:"costs"`
	Remedy string `json:"remedy"`
}

// Essential are the facts, by topic and name, that a recording needs; the tap's object is needed for programs other
// than llamatap run. One that is limited lets it record.
var Essential = [][2]string{
	{"llama.cpp", "library"}, {"llama.cpp", "devices"}, {"entry points", "graphs"}, {"entry points", "tensors"},
	{"tap", "object"}, {"tap", "shared memory"}, {"output", "folder"},
}

// essential reports whether a recording needs f.
func (f Fact) essential() bool { return slices.Contains(Essential, [2]string{f.Topic, f.Name}) }

// Lacking returns the essential facts that are missing.
func Lacking(facts []Fact) []Fact {
	var lack []Fact
	for _, f := range facts {
		if f.Status == Missing && f.essential() {
			lack = append(lack, f)
		}
	}
	return lack
}

// lacking fills in what the lack of f costs and how to get it.
func (f Fact) lacking(costs, remedy string) Fact {
	if f.Status == Missing || f.Status == Limited {
		f.Costs, f.Remedy = costs, remedy
	}
	return f
}

// with returns f with a status and a value.
func (f Fact) with(status Status, value string) Fact {
	f.Status, f.Value = status, value
	return f
}

// unknown returns f as one that err kept from being determined.
func (f Fact) unknown(err error) Fact {
	text := err.Error()
	var path *fs.PathError
	if errors.As(err, &path) && !strings.HasPrefix(path.Path, "/") { // a file below the root
		text = strings.Replace(text, path.Op+" "+path.Path, path.Op+" /"+path.Path, 1)
	}
	return f.with(Unknown, oneLine(text))
}

// oneLine returns text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// word returns the content of a file without the white space around it.
func word(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, name)
	return strings.TrimSpace(string(b)), err
}

// absent reports whether err says that a file is not there, rather than that it cannot be looked at.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// isAbsentInKernel reports whether err says that the kernel does not have what the file stands for: the file is not
// there, and the file system of the kernel that it belongs to (proc, sys) is.
func isAbsentInKernel(root fs.FS, top string, err error) bool {
	entries, _ := fs.ReadDir(root, top)
	return absent(err) && len(entries) > 0
}
