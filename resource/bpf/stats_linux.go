package bpf

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// EnableStats makes the kernel count the runs and the time of all BPF programs until it is closed, at the price of
// two clock readings a run.
func EnableStats() (io.Closer, error) {
	c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, explain("count the cost of BPF programs", err)
	}
	return c, nil
}

// Programs returns the cost of each program, by name.
func (s *Set) Programs() ([]ProgramStat, error) {
	var programStats []ProgramStat
	for _, name := range slices.Sorted(maps.Keys(s.collection.Programs)) {
		got, err := s.collection.Programs[name].Stats()
		if err != nil {
			return nil, fmt.Errorf("cost of BPF program %s: %w", name, err)
		}
		st := ProgramStat{Name: name, Runs: got.RunCount, Time: got.Runtime}
		if st.Runs > 0 {
			st.PerNS = float64(st.Time) / float64(st.Runs)
		}
		programStats = append(programStats, st)
	}
	return programStats, nil
}
