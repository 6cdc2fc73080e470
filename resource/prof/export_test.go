//go:build linux

package prof

import (
	"encoding/binary"

	"github.com/cilium/ebpf"
)

// WithCallers returns options with room for n calls of processes.
func WithCallers(o Options, n uint32) Options {
	o.callers = n
	return o
}

// Kept is how many entries of processes the growing maps of a collector have, by name. What any program of the machine
// may cause, such as a segment that is sent again when its process has ended, is of process 0.
func Kept(c *Collector) (map[string]int, error) {
	kept := map[string]int{}
	for _, name := range []string{"calls", "nets", "opens", "owners", "processes"} {
		different := map[string]bool{} // an entry that goes and comes back meanwhile is met again
		key, value := []byte(nil), []byte(nil)
		entries := c.set.Map(name).Iterate()
		if t := c.set.Map(name).Type(); t == ebpf.PerCPUHash {
			var values [][]byte
			for entries.Next(&key, &values) {
				if name == "nets" && binary.NativeEndian.Uint32(key) == 0 {
					continue
				}
				different[string(key)] = true
			}
		} else {
			for entries.Next(&key, &value) {
				different[string(key)] = true
			}
		}
		if err := entries.Err(); err != nil {
			return nil, err
		}
		kept[name] = len(different)
	}
	return kept, nil
}

// Targets is how many processes are watched.
func Targets(c *Collector) (int, error) {
	n := 0
	var tgid uint32
	var yes uint8
	entries := c.set.Map("target_pids").Iterate()
	for entries.Next(&tgid, &yes) {
		n++
	}
	return n, entries.Err()
}
