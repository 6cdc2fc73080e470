//go:build linux

package session

import (
	"sync"
	"time"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/resource/oplog"
)

// gpus samples the machine's GPUs through NVML: once in gpuEvery, at the beginning and at the end.
type gpus struct {
	library *nvml.Library
	devices int
	last    []oplog.GPUReading // of each device: when it was read, and its energy counter; MonoNS 0: not yet
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	taken   []oplog.GPUReading
}

// gpuEvery is how often GPUs are sampled. NVML's own sample period is at most as long.
const gpuEvery = time.Second

// maxReadings bounds the samples that nobody has taken.
const maxReadings = 4096

// openGPUs starts sampling; nil where there is no GPU that NVML knows. Close it.
func openGPUs(name string) *gpus {
	library, err := nvml.Open(name)
	if err != nil {
		return nil
	}
	n, err := library.Devices()
	if err != nil || n == 0 {
		library.Close()
		return nil
	}
	g := &gpus{library: library, devices: n, last: make([]oplog.GPUReading, n), stop: make(chan struct{})}
	g.done.Go(g.sample)
	return g
}

// sample is a goroutine.
func (g *gpus) sample() {
	tick := time.NewTicker(gpuEvery)
	defer tick.Stop()
	for stopped := false; ; {
		for device := range g.devices {
			g.read(device)
		}
		if stopped {
			return
		}
		select {
		case <-tick.C:
		case <-g.stop:
			stopped = true // after a last sample
		}
	}
}

// read takes a sample of a device. What cannot be read is left out; the next window is the longer.
func (g *gpus) read(device int) {
	s, err := g.library.Read(device)
	if err != nil {
		return
	}
	last := &g.last[device]
	r := oplog.GPUReading{
		MonoNS: monotonic(), Index: device, Name: s.Name, Percent: s.GPUPercent, MemoryPercent: s.MemoryPercent,
		Used: s.UsedBytes, Total: s.TotalBytes,
		PowerMW: s.PowerMW, EnergyMJ: -1,
	}
	if last.MonoNS != 0 {
		r.WindowNS = r.MonoNS - last.MonoNS
		if s.EnergyMJ >= 0 && last.EnergyMJ >= 0 {
			r.EnergyMJ = s.EnergyMJ - last.EnergyMJ
		}
	}
	last.MonoNS, last.EnergyMJ = r.MonoNS, s.EnergyMJ
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.taken) < maxReadings {
		g.taken = append(g.taken, r)
	}
}

// take is [oplog.Options].GPU.
func (g *gpus) take(dst []oplog.GPUReading) []oplog.GPUReading {
	g.mu.Lock()
	defer g.mu.Unlock()
	dst = append(dst, g.taken...)
	g.taken = g.taken[:0]
	return dst
}

// end takes the last samples. It may be called twice, and of nil.
func (g *gpus) end() {
	if g == nil || g.library == nil {
		return
	}
	close(g.stop)
	g.done.Wait()
	g.library.Close()
	g.library = nil
}
