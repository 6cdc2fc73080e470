package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// batch is how many entries of a map are read by one system call.
const batch = 512

// Each calls f for every entry of a map whose values are not per CPU. Entries that come or go meanwhile may or may
// not be seen; none is seen twice unless the map is written meanwhile.
func Each[K comparable, V any](m *ebpf.Map, f func(K, V)) error {
	keys, values := make([]K, batch), make([]V, batch)
	var at ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&at, keys, values, nil)
		for i := range n {
			f(keys[i], values[i])
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist): // the end
			return nil
		case errors.Is(err, unix.ENOSPC) && n == 0: // one bucket holds more than the arrays
			keys, values = make([]K, 2*len(keys)), make([]V, 2*len(values))
		case err != nil:
			return fmt.Errorf("read BPF map %s: %w", m.String(), err)
		}
	}
}

// EachPerCPU calls f for every entry of a per-CPU map with the values of all processors. The slice is used again
// for the next entry.
func EachPerCPU[K comparable, V any](m *ebpf.Map, f func(K, []V)) error {
	var key K
	var values []V
	entries := m.Iterate()
	for entries.Next(&key, &values) {
		f(key, values)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read BPF map %s: %w", m.String(), err)
	}
	return nil
}

// Sum returns the sum of a counter that each processor has for itself, of an array map.
func Sum(m *ebpf.Map, index uint32) (uint64, error) {
	var values []uint64
	if err := m.Lookup(index, &values); err != nil {
		return 0, fmt.Errorf("read BPF map %s: %w", m.String(), err)
	}
	var n uint64
	for _, v := range values {
		n += v
	}
	return n, nil
}

// MonoNS reads CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns.
func MonoNS() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}
