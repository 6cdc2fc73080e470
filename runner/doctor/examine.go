// Package doctor says what a machine lets llamatap record, one fact a line.
//
// Files are read below a root that the caller names, so that tests hand in trees of other machines; what a file
// does not show is tried (a system call that the kernel takes or refuses). What cannot be determined is Unknown with
// the reason in Value, never guessed.
package doctor

import (
	"io/fs"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
)

// Options say what to look at.
type Options struct {
	Root     fs.FS                          // files of the machine
	Tap      func() (string, error)         // finds the tap as an object to preload
	Out      string                         // folder in which run directories are made
	Quick    bool                           // leave out what is measured
	Devices  func() ([]llama.Device, error) // asks llama.cpp for its devices
	Products func() ([]Product, error)      // measures the BLAS backend; nil: it is not measured
	Host     func() []HostCollector         // tries the collectors of what the kernel does; nil: they are not tried
	// Sample tries a collector of memory samples, see sample.Try; nil: they are not tried.
	Sample func(name string) (notes []string, err error)
}

// Examine returns the facts in the order of their topics.
func Examine(o Options) []Fact {
	return slices.Concat(engine(o), []Fact{object(o.Tap), shared()}, output(o), Machine(o.Root), sensors(o.Root),
		hostCollectors(o.Host), sampleCollectors(o.Sample), speed(o))
}

// Machine returns the facts that the files of a machine hold.
func Machine(root fs.FS) []Fact {
	return slices.Concat(hardware(root), cgroups(root), kernel(root), capabilities(root), counters(root))
}
