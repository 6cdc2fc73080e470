//go:build linux

package prof

import "github.com/cilium/ebpf"

// WithCallers returns options with room for n calls of processes.
func WithCallers(o Options, n uint32) Options {
	o.callers = n
	return o
}

// Kept is how many entries the growing maps of a collector have, by name.
func Kept(c *Collector) (map[string]int, error) {
	kept := map[string]int{}
	for _, name := range []string{"calls", "nets", "opens", "owners", "processes"} {
		n := 0
		key, value := []byte(nil), []byte(nil)
		entries := c.set.Map(name).Iterate()
		if t := c.set.Map(name).Type(); t == ebpf.PerCPUHash {
			var values [][]byte
			for entries.Next(&key, &values) {
				n++
			}
		} else {
			for entries.Next(&key, &value) {
				n++
			}
		}
		if err := entries.Err(); err != nil {
			return nil, err
		}
		kept[name] = n
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
