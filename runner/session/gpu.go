//go:build linux

package session

import (
	"time"

	"github.com/llamatap/llamatap/cgo/nvml"
)

// gpu asks NVML how busy the machine's one GPU is, at most ten times a second.
type gpu struct {
	library *nvml.Library
	sample  nvml.Sample
	asked   time.Time
	ok      bool
}

// gpuEvery is how long an answer counts.
const gpuEvery = 100 * time.Millisecond

// openGPU returns nil where there is no GPU that NVML knows, or more than one: devices of llama.cpp are numbered otherwise than NVML's.
func openGPU(name string) *gpu {
	library, err := nvml.Open(name)
	if err != nil {
		return nil
	}
	if n, err := library.Devices(); err != nil || n != 1 {
		library.Close()
		return nil
	}
	return &gpu{library: library}
}

// read is [oplog.Options].GPU.
func (g *gpu) read() (smPercent float64, used uint64, ok bool) {
	if now := time.Now(); now.Sub(g.asked) >= gpuEvery {
		var err error
		g.sample, err = g.library.Read(0)
		g.asked, g.ok = now, err == nil
	}
	return float64(g.sample.SMPercent), g.sample.UsedBytes, g.ok
}

func (g *gpu) close() {
	if g != nil {
		g.library.Close()
	}
}
