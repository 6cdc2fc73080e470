package perfmem

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Family is a kind of PMU that samples memory.
type Family string

// The families.
const (
	Intel Family = "Intel PEBS"
	AMD   Family = "AMD IBS"
	Arm   Family = "Arm SPE"
)

// NotYetRun is what documents and doctor say of the families.
const NotYetRun = "not yet run on hardware: no machine of the project has such a PMU"

// ErrNoPMU says that the machine has no PMU that samples memory, or the kernel hides it, as in most virtual machines.
var ErrNoPMU = errors.New("no PMU of this machine samples memory")

// Wish is what is asked of a PMU. The zero value works.
type Wish struct {
	Period     uint64 // events per sample: loads or stores of Intel, operations of AMD, in steps of 16 from 144 on, and Arm; 0 = 4000 of Intel, 250,000 of AMD, 10,000 of Arm
	MinLatency uint64 // cycles that a load takes at least, where the PMU can tell; of AMD 128 to 2048, and no stores then; 0 = all
	PhysAddr   bool   // physical addresses too, which needs the right to trace the kernel
	UserOnly   bool   // nothing of the kernel, which needs fewer rights
}

// PMU is what samples memory on a machine.
type PMU struct {
	Family    Family
	Collector memtrace.Collector
	Events    []perfevent.EventSpec
	// Aux says that samples come in a buffer of their own, which a session does not read.
	Aux bool
}

// sampled is what a sample of memory tells.
const sampled = perfevent.SampleIP | perfevent.SampleTID | perfevent.SampleTime | perfevent.SampleAddr | perfevent.SampleCPU | perfevent.SamplePeriod |
	perfevent.SampleWeightStruct | perfevent.SampleDataSrc

// Find finds what samples memory, in a tree as /sys/bus/event_source/devices.
func Find(sys fs.FS, w Wish) (*PMU, error) {
	for _, find := range []func(fs.FS, Wish) (*PMU, error){findIntel, findAMD, findArm} {
		p, err := find(sys, w)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return p, err
	}
	return nil, fmt.Errorf("%w: needs Intel's mem-loads, AMD's ibs_op or Arm's arm_spe_0 in %s; sample page faults instead", ErrNoPMU, devices)
}

// attr is what all events of a family have in common.
func (w Wish) attr(usual uint64) perfevent.Attr {
	a := perfevent.Attr{Period: usual, SampleType: sampled}
	if w.Period != 0 {
		a.Period = w.Period
	}
	if w.PhysAddr {
		a.SampleType |= perfevent.SamplePhysAddr
	}
	if w.UserOnly {
		a.Flags |= perfevent.FlagExcludeKernel
	}
	return a
}

// findIntel finds loads with their latency, and stores: of each kind of core, where there are several.
func findIntel(sys fs.FS, w Wish) (*PMU, error) {
	found := &PMU{Family: Intel, Collector: memtrace.CollectorPerf}
	for _, name := range []string{"cpu", "cpu_core", "cpu_atom"} {
		p, err := openPMU(sys, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !p.has("events/mem-loads") {
			continue
		}
		if err == nil {
			err = found.intel(p, w)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(found.Events) == 0 {
		return nil, fs.ErrNotExist
	}
	return found, nil
}

// intel adds the events of one kind of core.
func (found *PMU) intel(p *pmu, w Wish) error {
	const usual, lowest = 4000, 3 // the lowest latency that the hardware takes
	cpus, err := p.cpus()
	if err != nil {
		return fmt.Errorf("%w: %s/cpus: %w", ErrFormat, p.name, err)
	}
	base := w.attr(usual)
	base.Flags |= perfevent.FlagExcludeGuest | perfevent.Precise(p.precise())
	if p.has("events/mem-loads-aux") {
		aux := base
		aux.Flags &^= perfevent.Precise(3)
		if err := p.event(&aux, "mem-loads-aux"); err != nil {
			return err
		}
		found.Events = append(found.Events, perfevent.EventSpec{Name: p.name + "/mem-loads-aux/", Attr: aux, CPUs: cpus, WithNext: true})
	}
	loads, stores := base, base
	if err := p.event(&loads, "mem-loads"); err != nil {
		return err
	}
	if err := p.place(&loads, "ldlat", max(w.MinLatency, lowest)); err != nil {
		return err
	}
	found.Events = append(found.Events, perfevent.EventSpec{Name: p.name + "/mem-loads/", Attr: loads, CPUs: cpus})
	if err := p.event(&stores, "mem-stores"); err != nil {
		return err
	}
	found.Events = append(found.Events, perfevent.EventSpec{Name: p.name + "/mem-stores/", Attr: stores, CPUs: cpus})
	return nil
}

// findAMD finds samples of operations: those that touch no memory have no address, and are passed over.
func findAMD(sys fs.FS, w Wish) (*PMU, error) {
	const (
		usual        = 250_000
		least, grain = 0x90, 0x10  // of periods: the kernel cuts off what is finer, and refuses what is less
		quick, slow  = 0x80, 0x800 // the latencies that loads can be told apart by
	)
	p, err := openPMU(sys, "ibs_op")
	if err != nil {
		return nil, err
	}
	a := w.attr(usual)
	a.Type = p.kind
	a.Period = max(a.Period&^(grain-1), least)
	if p.has("format/cnt_ctl") {
		if err := p.place(&a, "cnt_ctl", 1); err != nil { // counts operations, not cycles
			return nil, err
		}
	}
	if w.UserOnly {
		if !p.has("format/swfilt") {
			return nil, fmt.Errorf("%w: ibs_op of this kernel cannot leave the kernel's own operations out: Linux 6.13 can; or as root, sysctl kernel.perf_event_paranoid=1", ErrNoPMU)
		}
		if err := p.place(&a, "swfilt", 1); err != nil {
			return nil, err
		}
	}
	if w.MinLatency != 0 && p.has("format/ldlat") {
		if err := p.place(&a, "ldlat", min(max(w.MinLatency, quick), slow)); err != nil {
			return nil, err
		}
	}
	return &PMU{Family: AMD, Collector: memtrace.CollectorIBS, Events: []perfevent.EventSpec{{Name: "ibs_op//", Attr: a}}}, nil
}

// findArm finds the profiling of loads and stores.
func findArm(sys fs.FS, w Wish) (*PMU, error) {
	const usual = 10_000
	names := named(sys, "arm_spe_")
	if len(names) == 0 {
		return nil, fs.ErrNotExist
	}
	found := &PMU{Family: Arm, Collector: memtrace.CollectorSPE, Aux: true}
	for _, name := range names {
		p, err := openPMU(sys, name)
		if err != nil {
			return nil, err
		}
		a := w.attr(usual)
		a.Type = p.kind
		a.SampleType = perfevent.SampleIP | perfevent.SampleTID | perfevent.SampleTime | perfevent.SampleCPU
		terms := "ts_enable=1,load_filter=1,store_filter=1,jitter=1"
		if w.PhysAddr {
			terms += ",pa_enable=1"
		}
		if w.MinLatency != 0 {
			terms += fmt.Sprintf(",min_latency=%d", w.MinLatency)
		}
		if err := p.set(&a, terms); err != nil {
			return nil, err
		}
		cpus, err := p.cpus()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFormat, name, err)
		}
		found.Events = append(found.Events, perfevent.EventSpec{Name: name + "//", Attr: a, CPUs: cpus})
	}
	return found, nil
}
