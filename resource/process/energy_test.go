package process

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
)

// TestEnergyZones: two packages with their memory are listed in order; parts of them, the whole platform, and the
// second way to the same counters (MMIO) are not.
func TestEnergyZones(t *testing.T) {
	root := fstest.MapFS{}
	for dir, name := range map[string]string{
		"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram",
		"intel-rapl:1": "package-1", "intel-rapl:1:0": "dram", "intel-rapl:2": "psys", "intel-rapl:2:0": "dram",
		"intel-rapl-mmio:0": "package-0", "dtpm": "dtpm",
	} {
		at := "sys/class/powercap/" + dir
		root[at+"/name"] = &fstest.MapFile{Data: []byte(name + "\n")}
		root[at+"/energy_uj"] = &fstest.MapFile{Data: []byte("41" + dir[len(dir)-1:] + "\n")}
		root[at+"/max_energy_range_uj"] = &fstest.MapFile{Data: []byte("1000\n")}
	}
	root["sys/class/powercap/intel-rapl/enabled"] = &fstest.MapFile{}
	want := []struct {
		name string
		uj   uint64
	}{{"package-0", 410}, {"package-0/dram", 411}, {"package-1", 411}, {"package-1/dram", 410}}
	zones := EnergyZones(root)
	if len(zones) != len(want) {
		t.Fatalf("%+v", zones)
	}
	for i := range zones {
		if uj, err := zones[i].Read(root); zones[i].Name != want[i].name || uj != want[i].uj || err != nil {
			t.Errorf("%s: %d µJ, %v; want %+v", zones[i].Name, uj, err, want[i])
		}
	}

	const counter = "sys/class/powercap/intel-rapl:0/energy_uj"
	root[counter].Data = []byte("many\n")
	if _, err := zones[0].Read(root); err == nil {
		t.Error("a counter without a number was read")
	}
	delete(root, counter)
	if _, err := zones[0].Read(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a counter that is gone: %v", err)
	}
	if zones := EnergyZones(fstest.MapFS{}); zones != nil {
		t.Errorf("of a machine without RAPL: %+v", zones)
	}
}

// TestEnergyUsed: a counter that began anew counts on; one of which nobody knows where it begins anew has no
// difference.
func TestEnergyUsed(t *testing.T) {
	for _, c := range []struct {
		most, before, after, used uint64
		ok                        bool
	}{
		{1000, 10, 10, 0, true}, {1000, 10, 900, 890, true}, {1000, 900, 10, 110, true}, {1000, 1000, 0, 0, true},
		{0, 900, 10, 0, false}, {800, 900, 10, 0, false}, {0, 10, 900, 890, true},
	} {
		z := EnergyZone{most: c.most}
		if used, ok := z.Used(c.before, c.after); ok != c.ok || ok && used != c.used {
			t.Errorf("%+v: %d, %v", c, used, ok)
		}
	}
}

// TestEnergyOfThisMachine: what is listed of this machine is read, or refused.
func TestEnergyOfThisMachine(t *testing.T) {
	root := os.DirFS("/")
	for _, z := range EnergyZones(root) {
		if _, err := z.Read(root); err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", z.Name, err)
		}
	}
}
