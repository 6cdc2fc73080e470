//go:build !linux

package doctor

import "io/fs"

func space(string) Fact {
	return Fact{Topic: "output", Name: "free space", Status: Unknown, Value: "looked at on Linux only"}
}

// sensors tries nothing: recorders run on Linux.
func sensors(fs.FS) []Fact { return nil }

// shared is not looked at where there is no tap.
func shared() Fact {
	return Fact{Topic: "tap", Name: "shared memory", Status: Unknown, Value: "looked at on Linux only"}
}
