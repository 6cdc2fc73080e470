package bench

import "time"

// HostCost measures what the collectors of --tap-host cost: the time of their BPF programs per event, as the kernel
// counts it, under a load of nothing but such events. What the kernel counts for a program that does nothing is
// taken off.
type HostCost struct {
	Dir      string        // folder on the disk that is read
	Time     time.Duration // for all loads together
	Table    *Table
	Progress func(string)

	blank float64 // ns that counting itself costs per run
}

// hostGates are the most that an event may cost, in ns.
var hostGates = map[string]float64{"block request": 100, "context switch": 150}
