//go:build linux

package session

import (
	"sync"
	"time"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/oplog"
)

// gpus samples the machine's GPUs through NVML: once in gpuEvery, at the beginning and at the end.
type gpus struct {
	library *nvml.Library
	last    []gpuLast // of each device
	reads   int       // of all devices
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	taken   []oplog.GPUReading
}

// gpuLast is a device's sample that was taken last. Without a time there is none.
type gpuLast struct {
	monoNS int64
	nvml.Sample
}

// gpuEvery is how often GPUs are sampled: energy counters change about as often.
const gpuEvery = 100 * time.Millisecond

// gpuSeldom is in how many samples of a device one has what takes long to read, or stands for a second.
const gpuSeldom = 10

// maxReadings bounds the samples that nobody has taken. Beyond it none is taken, and the next window is longer.
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
	g := &gpus{library: library, last: make([]gpuLast, n), stop: make(chan struct{})}
	g.read() // before anything is computed
	g.done.Go(g.sample)
	return g
}

// sample is a goroutine.
func (g *gpus) sample() {
	tick := time.NewTicker(gpuEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !g.full() {
				g.read()
			}
		case <-g.stop:
			g.read()
			return
		}
	}
}

// read takes a sample of each device. One that cannot be read is left out, and its next window is longer.
func (g *gpus) read() {
	for device := range g.last {
		last := &g.last[device]
		s, err := g.library.Read(device, last.Sample, (g.reads+device)%gpuSeldom == 0)
		if err != nil {
			continue
		}
		r := oplog.GPUReading{MonoNS: monotonic(), Index: device, Sample: s}
		if last.monoNS != 0 {
			r.WindowNS = r.MonoNS - last.monoNS
			r.WindowJ, r.EnergySource = used(&last.Sample, &s, r.WindowNS)
		}
		last.monoNS, last.Sample = r.MonoNS, s
		g.mu.Lock()
		g.taken = append(g.taken, r)
		g.mu.Unlock()
	}
	g.reads++
}

// used is the energy in J of a window between two samples, and what it was read from; "": it is not known.
func used(before, after *nvml.Sample, windowNS int64) (float64, string) {
	switch {
	case before.EnergyMJ >= 0 && after.EnergyMJ >= before.EnergyMJ:
		return float64(after.EnergyMJ-before.EnergyMJ) / 1e3, resource.EnergyCounter
	case before.EnergyMJ < 0 && after.EnergyMJ < 0 && before.PowerMW >= 0 && after.PowerMW >= 0:
		return float64(before.PowerMW+after.PowerMW) / 2e3 * float64(windowNS) / 1e9, resource.PowerSamples
	}
	return 0, "" // a counter that began anew
}

func (g *gpus) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.taken) >= maxReadings
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
