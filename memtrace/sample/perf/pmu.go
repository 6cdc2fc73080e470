package perf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/llamatap/llamatap/memtrace"
)

// The families of PMUs that sample memory.
const (
	familyIntel = "Intel PEBS"
	familyAMD   = "AMD IBS"
	familyArm   = "Arm SPE"
)

// NotYetRun is the remark on every PMU family in documents and in doctor.
const NotYetRun = "not yet run on hardware: no machine of the project has such a PMU"

// ErrNoPMU occurs when the machine has no PMU that samples memory, or the kernel hides it, as in most virtual
// machines.
var ErrNoPMU = errors.New("no PMU of this machine samples memory")

// PMUConfig configures a PMU. The zero value works.
type PMUConfig struct {
	// Period is the number of events per sample: loads or stores on Intel, operations on AMD (a multiple of 16, at
	// least 144) and on Arm. 0 = 4000 on Intel, 250,000 on AMD, 10,000 on Arm.
	Period   uint64
	PhysAddr bool // record physical addresses as well; requires permission to trace the kernel
	UserOnly bool // exclude the kernel; requires fewer permissions
}

// PMU is a unit of the machine that samples memory accesses.
type PMU struct {
	Family    string
	Collector memtrace.Collector
	Events    []eventSpec
	// Aux reports whether samples come in a separate AUX buffer, which a Session does not read.
	Aux bool
}

// memorySample are the fields of a memory sample.
const memorySample = sampleIP | sampleTID | sampleTime | sampleAddr | sampleCPU | samplePeriod |
	sampleWeightStruct | sampleDataSrc

// findPMU finds the PMU that samples memory in sys, a tree like /sys/bus/event_source/devices. The error is ErrNoPMU
// if there is none.
func findPMU(sys fs.FS, w PMUConfig) (*PMU, error) {
	for _, find := range []func(fs.FS, PMUConfig) (*PMU, error){findIntel, findAMD, findArm} {
		p, err := find(sys, w)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return p, err
	}
	return nil, fmt.Errorf("%w: needs Intel's mem-loads, AMD's ibs_op or Arm's arm_spe_0 in %s; "+
		"sample page faults instead", ErrNoPMU, devices)
}

// attr returns the attribute that all events of a family share.
func (w PMUConfig) attr(usual uint64) Attr {
	a := Attr{Period: usual, SampleType: memorySample}
	if w.Period != 0 {
		a.Period = w.Period
	}
	if w.PhysAddr {
		a.SampleType |= samplePhysAddr
	}
	if w.UserOnly {
		a.Flags |= flagExcludeKernel
	}
	return a
}

// findIntel finds the events for loads with their latency and for stores, for each kind of core.
func findIntel(sys fs.FS, w PMUConfig) (*PMU, error) {
	found := &PMU{Family: familyIntel, Collector: memtrace.CollectorPerf}
	for _, name := range []string{"cpu", "cpu_core", "cpu_atom"} {
		p, err := openPMU(sys, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !p.has("events/mem-loads") {
			continue
		}
		if err == nil {
			err = found.addIntel(p, w)
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

// addIntel adds the events of one kind of core.
func (found *PMU) addIntel(p *pmu, w PMUConfig) error {
	const usual, lowest = 4000, 3 // the lowest latency that the hardware takes
	cpus, err := p.cpus()
	if err != nil {
		return fmt.Errorf("%w: %s/cpus: %w", ErrSysfs, p.name, err)
	}
	base := w.attr(usual)
	base.Flags |= flagExcludeGuest | preciseFlag(p.precise())
	if p.has("events/mem-loads-aux") {
		aux := base
		aux.Flags &^= preciseFlag(3)
		if err := p.event(&aux, "mem-loads-aux"); err != nil {
			return err
		}
		found.Events = append(found.Events, eventSpec{Name: p.name + "/mem-loads-aux/", Attr: aux, CPUs: cpus,
			WithNext: true})
	}
	loads, stores := base, base
	if err := p.event(&loads, "mem-loads"); err != nil {
		return err
	}
	if err := p.setTerm(&loads, "ldlat", lowest); err != nil {
		return err
	}
	found.Events = append(found.Events, eventSpec{Name: p.name + "/mem-loads/", Attr: loads, CPUs: cpus})
	if err := p.event(&stores, "mem-stores"); err != nil {
		return err
	}
	found.Events = append(found.Events, eventSpec{Name: p.name + "/mem-stores/", Attr: stores, CPUs: cpus})
	return nil
}

// findAMD finds the event that samples operations. Samples of operations that access no memory have no address and
// are skipped.
func findAMD(sys fs.FS, w PMUConfig) (*PMU, error) {
	const (
		usual        = 250_000
		least, grain = 0x90, 0x10 // of periods: the kernel rounds down to grain and rejects smaller values
	)
	p, err := openPMU(sys, "ibs_op")
	if err != nil {
		return nil, err
	}
	a := w.attr(usual)
	a.Type = p.kind
	a.Period = max(a.Period&^(grain-1), least)
	if p.has("format/cnt_ctl") {
		if err := p.setTerm(&a, "cnt_ctl", 1); err != nil { // counts operations, not cycles
			return nil, err
		}
	}
	if w.UserOnly {
		if !p.has("format/swfilt") {
			return nil, fmt.Errorf("%w: ibs_op of this kernel cannot leave the kernel's own operations out: Linux "+
				"6.13 can; or as root, sysctl kernel.perf_event_paranoid=1", ErrNoPMU)
		}
		if err := p.setTerm(&a, "swfilt", 1); err != nil {
			return nil, err
		}
	}
	return &PMU{Family: familyAMD, Collector: memtrace.CollectorIBS, Events: []eventSpec{{Name: "ibs_op//", Attr: a}}},
		nil
}

// findArm finds the statistical profiling of loads and stores.
func findArm(sys fs.FS, w PMUConfig) (*PMU, error) {
	const usual = 10_000
	names := named(sys, "arm_spe_")
	if len(names) == 0 {
		return nil, fs.ErrNotExist
	}
	found := &PMU{Family: familyArm, Collector: memtrace.CollectorSPE, Aux: true}
	for _, name := range names {
		p, err := openPMU(sys, name)
		if err != nil {
			return nil, err
		}
		a := w.attr(usual)
		a.Type = p.kind
		a.SampleType = sampleIP | sampleTID | sampleTime | sampleCPU
		terms := "ts_enable=1,load_filter=1,store_filter=1,jitter=1"
		if w.PhysAddr {
			terms += ",pa_enable=1"
		}
		if err := p.set(&a, terms); err != nil {
			return nil, err
		}
		cpus, err := p.cpus()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSysfs, name, err)
		}
		found.Events = append(found.Events, eventSpec{Name: name + "//", Attr: a, CPUs: cpus})
	}
	return found, nil
}
