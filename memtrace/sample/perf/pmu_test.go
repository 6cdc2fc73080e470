package perf

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/memtrace"
)

var updateAttrs = flag.Bool("update-attrs", false, "rewrite testdata/attrs.golden")

// tree makes a sysfs tree from lines PATH CONTENT.
func tree(lines string) fs.FS {
	files := fstest.MapFS{}
	for line := range strings.Lines(lines) {
		if path, content, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[path] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	return files
}

// core are the files that all Intel core PMUs have; NAME stands for the name.
const core = `
NAME/format/event config:0-7
NAME/format/umask config:8-15
NAME/format/ldlat config1:0-15
NAME/format/frontend config1:0-23
NAME/caps/max_precise 3
`

// machines are the relevant sysfs files of several machines, after arch/x86/events and drivers/perf of Linux.
var machines = []struct {
	name  string
	sys   fs.FS
	first string // config, config1, config2 of each event, as perf mem record -vv shows them
}{
	{"skylake", tree(strings.ReplaceAll(core, "NAME", "cpu") + `
		cpu/type 4
		cpu/events/mem-loads event=0xcd,umask=0x1,ldlat=3
		cpu/events/mem-stores event=0xd0,umask=0x82`), "4 0x1cd 0x3 0x0; 4 0x82d0 0x0 0x0"},
	{"sapphire rapids", tree(strings.ReplaceAll(core, "NAME", "cpu") + `
		cpu/type 4
		cpu/events/mem-loads event=0xcd,umask=0x1,ldlat=3
		cpu/events/mem-loads-aux event=0x03,umask=0x82
		cpu/events/mem-stores event=0xcd,umask=0x2`), "4 0x8203 0x0 0x0; 4 0x1cd 0x3 0x0; 4 0x2cd 0x0 0x0"},
	{"alder lake", tree(strings.ReplaceAll(core, "NAME", "cpu_core") + strings.ReplaceAll(core, "NAME", "cpu_atom") + `
		cpu_core/type 4
		cpu_core/cpus 0-15
		cpu_core/events/mem-loads event=0xcd,umask=0x1,ldlat=3
		cpu_core/events/mem-loads-aux event=0x03,umask=0x82
		cpu_core/events/mem-stores event=0xcd,umask=0x2
		cpu_atom/type 10
		cpu_atom/cpus 16-23
		cpu_atom/events/mem-loads event=0xd0,umask=0x5,ldlat=3
		cpu_atom/events/mem-stores event=0xd0,umask=0x6`), "4 0x8203 0x0 0x0; 4 0x1cd 0x3 0x0; 4 0x2cd 0x0 0x0; 10 0x5d0 0x3 0x0; 10 0x6d0 0x0 0x0"},
	{"zen 3", tree(`
		cpu/type 4
		cpu/events/cpu-cycles event=0x76
		ibs_fetch/type 8
		ibs_op/type 9
		ibs_op/format/cnt_ctl config:19`), "9 0x80000 0x0 0x0"},
	{"zen 5", tree(`
		cpu/type 4
		ibs_op/type 11
		ibs_op/format/cnt_ctl config:19
		ibs_op/format/l3missonly config:16
		ibs_op/format/ldlat config1:0-11
		ibs_op/format/swfilt config2:0`), "11 0x80000 0x0 0x0"},
	{"neoverse", tree(`
		armv8_pmuv3_0/type 8
		arm_spe_0/type 9
		arm_spe_0/cpus 0-63
		arm_spe_0/format/ts_enable config:0
		arm_spe_0/format/pa_enable config:1
		arm_spe_0/format/jitter config:16
		arm_spe_0/format/branch_filter config:32
		arm_spe_0/format/load_filter config:33
		arm_spe_0/format/store_filter config:34
		arm_spe_0/format/min_latency config2:0-11`), "9 0x600010001 0x0 0x0"},
}

// TestAttributesOfFamilies checks the events that are opened on each machine against testdata/attrs.golden.
func TestAttributesOfFamilies(t *testing.T) {
	var golden bytes.Buffer
	for _, m := range machines {
		for what, w := range map[string]PMUConfig{"": {}} {
			p, err := findPMU(m.sys, w)
			if err != nil {
				t.Errorf("%s%s: %v", m.name, what, err)
				continue
			}
			var configs []string
			for _, e := range p.Events {
				configs = append(configs, fmt.Sprintf("%d %#x %#x %#x", e.Attr.Type, e.Attr.Config, e.Attr.Config1,
					e.Attr.Config2))
			}
			if got := strings.Join(configs, "; "); got != m.first {
				t.Errorf("%s: %s, want %s", m.name, got, m.first)
			}
		}
		for _, w := range []PMUConfig{{}, {Period: 99, PhysAddr: true, UserOnly: true}} {
			fmt.Fprintf(&golden, "%s %+v\n", m.name, w)
			p, err := findPMU(m.sys, w)
			if err != nil {
				fmt.Fprintf(&golden, "  %v\n", err)
				continue
			}
			fmt.Fprintf(&golden, "  %s collector %v aux %v\n", p.Family, p.Collector, p.Aux)
			for _, e := range p.Events {
				fmt.Fprintf(&golden, "  %s CPUs %v with next %v\n    %x\n", e.Name, e.CPUs, e.WithNext,
					e.Attr.Append(nil))
			}
		}
	}
	const path = "testdata/attrs.golden"
	if *updateAttrs {
		if err := os.WriteFile(path, golden.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(golden.Bytes(), want) {
		t.Errorf("%v; go test -update-attrs, and check what changed in %s:\n%s", err, path, golden.Bytes())
	}
}

// TestPMUConfig checks that attributes contain what was configured, where the machine supports it.
func TestPMUConfig(t *testing.T) {
	w := PMUConfig{Period: 123, PhysAddr: true}
	for _, m := range machines {
		p, err := findPMU(m.sys, w)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Events {
			a := e.Attr
			// the minimum of IBS
			period := map[string]uint64{familyIntel: 123, familyAMD: 144, familyArm: 123}[p.Family]
			if a.Period != period || p.Family == familyIntel && a.SampleType&samplePhysAddr == 0 {
				t.Errorf("%s: %s: %+v", m.name, e.Name, a)
			}
			precise := a.Flags&preciseFlag(3) != 0
			if want := p.Family == familyIntel && !e.WithNext; precise != want {
				t.Errorf("%s: %s: precise %v", m.name, e.Name, precise)
			}
			if p.Family == familyAMD && a.Flags != 0 {
				t.Errorf("%s: flags %#x: IBS takes none", m.name, a.Flags)
			}
		}
	}
	if _, err := findPMU(machines[3].sys, PMUConfig{UserOnly: true}); !errors.Is(err, ErrNoPMU) ||
		!strings.Contains(err.Error(), "6.13") {
		t.Errorf("IBS that cannot leave the kernel out: %v", err)
	}
	if p, err := findPMU(machines[4].sys, PMUConfig{UserOnly: true}); err != nil ||
		p.Events[0].Attr.Config2 != 1 {
		t.Errorf("IBS that can: %+v, %v", p, err)
	}
}

// TestIBSBounds checks that periods are rounded to what IBS supports; kernels reject other values
// (arch/x86/events/amd/ibs.c).
func TestIBSBounds(t *testing.T) {
	for period, want := range map[uint64]uint64{0: 250_000, 1: 144, 144: 144, 10_001: 10_000, 1000: 992,
		1 << 40: 1 << 40} {
		p, err := findPMU(machines[4].sys, PMUConfig{Period: period})
		if err != nil || p.Events[0].Attr.Period != want {
			t.Errorf("period %d: %+v, %v", period, p, err)
		}
	}
}

// TestNoPMU covers machines without a suitable PMU, and malformed sysfs files.
func TestNoPMU(t *testing.T) {
	for what, sys := range map[string]fs.FS{"none": tree(""),
		"a virtual machine": tree("software/type 1\nmsr/type 9\ncpu/type 4\ncpu/events/cpu-cycles event=0x3c")} {
		if _, err := findPMU(sys, PMUConfig{}); !errors.Is(err, ErrNoPMU) ||
			!strings.Contains(err.Error(), "page faults") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, broken := range []string{
		"ibs_op/type nine", "ibs_op/type 9\nibs_op/format/cnt_ctl config19",
		"ibs_op/type 9\nibs_op/format/cnt_ctl config9:19", "ibs_op/type 9\nibs_op/format/cnt_ctl config:19-3",
		"cpu/type 4\ncpu/events/mem-loads event=0xcd",
		"cpu/type 4\ncpu/events/mem-loads event=zz\ncpu/format/event config:0-7",
		"cpu/type 4\ncpu/events/mem-loads event=0xcd\ncpu/format/event config:0-3",
		"cpu/type 4\ncpu/cpus a-b\ncpu/events/mem-loads event=0xcd",
	} {
		if p, err := findPMU(tree(broken), PMUConfig{}); !errors.Is(err, ErrSysfs) {
			t.Errorf("%q: %+v, %v", broken, p, err)
		}
	}
}

// TestTermsAcrossRanges sets terms whose bits are in several ranges.
func TestTermsAcrossRanges(t *testing.T) {
	p, err := openPMU(tree("x/type 77\nx/format/event config:0-7,32-35\nx/format/whole config2:0-63"), "x")
	if err != nil {
		t.Fatal(err)
	}
	var a Attr
	if err := p.set(&a, "event=0xabc,whole=0xffffffffffffffff,config1=5"); err != nil || a.Config != 0xa000000bc ||
		a.Config2 != 1<<64-1 || a.Config1 != 5 {
		t.Errorf("%#x %#x %#x: %v", a.Config, a.Config1, a.Config2, err)
	}
	if err := p.set(&a, "event=0x1abc"); !errors.Is(err, ErrSysfs) {
		t.Errorf("too much: %v", err)
	}
}

// TestCollectors checks the collector that rows of each family name.
func TestCollectors(t *testing.T) {
	for i, want := range []memtrace.Collector{memtrace.CollectorPerf, memtrace.CollectorPerf, memtrace.CollectorPerf,
		memtrace.CollectorIBS, memtrace.CollectorIBS, memtrace.CollectorSPE} {
		if p, err := findPMU(machines[i].sys, PMUConfig{}); err != nil || p.Collector != want ||
			p.Aux != (want == memtrace.CollectorSPE) {
			t.Errorf("%s: %+v, %v", machines[i].name, p, err)
		}
	}
}
