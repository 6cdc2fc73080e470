package bpftest

//go:generate ../../../scripts/generate-bpf switches switches.bpf.c

import "github.com/llamatap/llamatap/resource/bpf"

// Open loads the program. Its hook no_such_hook is in no kernel and optional.
func Open(o bpf.Options) (*bpf.Set, error) {
	spec, err := loadSwitches()
	if err != nil {
		return nil, err
	}
	o.Optional = append(o.Optional, "on_nothing")
	return bpf.Load(spec, o)
}
