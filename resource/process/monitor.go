package process

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// Options say whom a Monitor looks at.
type Options struct {
	// Model is the process that is recorded, which may not be known from the beginning: 0 until then, and none once
	// it has ended.
	Model func() int
	// Children are the processes that it has started, in the order in which they began, where they are recorded
	// too; nil: they are not. It is called by Snapshot.
	Children func() []int
	Interval time.Duration // nominal, for the lines
	// Now reads CLOCK_MONOTONIC in ns.
	Now func() int64
	// Root is the folder with proc and sys in it; "" = the machine's.
	Root string
}

// Monitor measures what the model's process, those that it has started and this one used between snapshots. It is for
// one goroutine.
type Monitor struct {
	o       Options
	host    host
	before  int64
	self    *figures
	family  family
	most    int // most children in a line
	speed   *processors
	sensors []sensor
}

// Open begins to measure, with the processors and sensors that the machine has now.
func Open(o Options) (*Monitor, error) {
	h := newHost(cmp.Or(o.Root, "/"))
	m := &Monitor{o: o, host: h, before: o.Now(), most: mostChildren, speed: findProcessors(h.files),
		sensors: findSensors(h.files)}
	var err error
	if m.self, err = h.read(os.Getpid()); err != nil {
		return nil, fmt.Errorf("what this process takes: %w; mount proc: mount -t proc proc /proc", err)
	}
	return m, nil
}

// Snapshot returns what happened since the snapshot before, or since Open, as a resource.MonitorLine.
func (m *Monitor) Snapshot(now time.Time) (any, error) {
	mono := m.o.Now()
	took := time.Duration(mono - m.before)
	m.before = mono
	line := resource.MonitorLine{HostHeader: resource.NewHostHeader(now, mono, m.o.Interval, took, resource.OriginProc)}
	if pid := m.o.Model(); pid > 0 {
		m.fill(&line, pid, took)
	}
	if self, err := m.host.read(os.Getpid()); err == nil {
		line.Collector = usageSince(self, m.self, took)
		m.self = self
	}
	line.MHz, line.MHzSource = m.speed.frequencies()
	line.Celsius = temperatures(m.host.files, m.sensors)
	return line, nil
}

// Close ends nothing: there is nothing to be freed.
func (m *Monitor) Close() error { return nil }
