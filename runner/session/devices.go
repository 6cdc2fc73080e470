//go:build linux

package session

import (
	"io/fs"
	"sync"
	"time"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/oplog"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/stream"
)

// devices samples the machine's GPUs through NVML, and the energy of its processors and memory through RAPL: once in
// sampleEvery, at the beginning and at the end.
type devices struct {
	root    fs.FS
	library *nvml.Library // nil: there is no GPU
	gpus    []gpuLast
	zones   []zoneLast
	reads   int // of all devices
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	taken   oplog.Readings
}

// gpuLast is the newest sample of a GPU, zoneLast an energy counter and its newest value. Without a time there is none.
type gpuLast struct {
	monoNS int64
	nvml.Sample
}

type zoneLast struct {
	process.EnergyZone
	monoNS int64
	uj     uint64
}

// sampleEvery is how often devices are sampled: energy counters of GPUs change about as often.
const sampleEvery = 100 * time.Millisecond

// seldom is in how many samples of a GPU one has what takes long to read, or stands for a second.
const seldom = 10

// maxReadings bounds the samples of GPUs or zones that nobody has taken. Beyond it none is taken, and the next window
// is longer.
const maxReadings = 4096

// openDevices starts sampling; nil where there is nothing to be sampled. library is NVML's. Close it.
func openDevices(library string, root fs.FS) *devices {
	d := &devices{root: root, stop: make(chan struct{})}
	if l, err := nvml.Open(library); err == nil {
		if n, err := l.Devices(); err == nil && n > 0 {
			d.library, d.gpus = l, make([]gpuLast, n)
		} else {
			l.Close()
		}
	}
	for _, zone := range process.EnergyZones(root) {
		if _, err := zone.Read(root); err == nil {
			d.zones = append(d.zones, zoneLast{EnergyZone: zone})
		}
	}
	if d.library == nil && d.zones == nil {
		return nil
	}
	d.read()
	d.done.Go(d.sample)
	return d
}

// sample returns a goroutine.
func (d *devices) sample() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !d.full() {
				d.read()
			}
		case <-d.stop:
			d.read()
			return
		}
	}
}

// read takes a sample of each device. One that cannot be read is left out, and its next window is longer.
func (d *devices) read() {
	for i := range d.zones {
		d.readZone(&d.zones[i])
	}
	for i := range d.gpus {
		d.readGPU(i)
	}
	d.reads++
}

func (d *devices) readZone(last *zoneLast) {
	uj, err := last.Read(d.root)
	if err != nil {
		return
	}
	now := stream.MonoNS()
	used, ok := last.Used(last.uj, uj)
	ok = ok && last.monoNS != 0
	r := oplog.ZoneReading{MonoNS: now, WindowNS: now - last.monoNS, Zone: last.Name, WindowJ: float64(used) / 1e6}
	last.monoNS, last.uj = now, uj
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken.Zones = append(d.taken.Zones, r)
}

func (d *devices) readGPU(index int) {
	last := &d.gpus[index]
	s, err := d.library.Read(index, last.Sample, (d.reads+index)%seldom == 0)
	if err != nil {
		return
	}
	r := oplog.GPUReading{MonoNS: stream.MonoNS(), Index: index, Sample: s}
	if last.monoNS != 0 {
		r.WindowNS = r.MonoNS - last.monoNS
		r.WindowJ, r.EnergySource = used(&last.Sample, &s, r.WindowNS)
	}
	last.monoNS, last.Sample = r.MonoNS, s
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken.GPUs = append(d.taken.GPUs, r)
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

func (d *devices) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.taken.GPUs) >= maxReadings || len(d.taken.Zones) >= maxReadings
}

// appendReadings implements [oplog.Options].Devices.
func (d *devices) appendReadings(to *oplog.Readings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to.GPUs, to.Zones = append(to.GPUs, d.taken.GPUs...), append(to.Zones, d.taken.Zones...)
	d.taken.GPUs, d.taken.Zones = d.taken.GPUs[:0], d.taken.Zones[:0]
}

// end takes the last samples. It may be called twice, and of nil.
func (d *devices) end() {
	if d == nil || d.stop == nil {
		return
	}
	close(d.stop)
	d.done.Wait()
	if d.library != nil {
		d.library.Close()
	}
	d.stop = nil
}
