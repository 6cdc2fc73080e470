//go:build !linux

package doctor

import (
	"errors"
	"io/fs"
)

// FreeDisk is known on Linux.
func FreeDisk(string) (uint64, error) { return 0, errors.ErrUnsupported }

func space(string) Fact {
	return Fact{Topic: "output", Name: "free space", Status: Unknown, Value: "looked at on Linux only"}
}

// sensors tries nothing: recorders run on Linux.
func sensors(fs.FS) []Fact { return nil }

// shared is not looked at where there is no tap.
func shared() Fact {
	return Fact{Topic: "tap", Name: "shared memory", Status: Unknown, Value: "looked at on Linux only"}
}
