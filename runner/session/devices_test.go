//go:build linux

package session

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/oplog"
)

// TestGPU: a GPU is sampled at the beginning, and at the end for the window between.
func TestGPU(t *testing.T) {
	if _, err := nvml.Open("nowhere.so"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if openDevices("libnvidia-ml-that-is-nowhere.so.1", fstest.MapFS{}) != nil {
		t.Error("a GPU without NVML")
	}
	for name, c := range map[string]struct{ lacks, energy, source string }{
		"counter":            {"", "10000 12000 12000", resource.EnergyCounter},
		"power":              {"TotalEnergyConsumption", "0", resource.PowerSamples},
		"neither":            {"TotalEnergyConsumption PowerUsage", "0", ""},
		"counter began anew": {"", "10000 3", ""},
		"counter, not power": {"PowerUsage", "10000 12000 12000", resource.EnergyCounter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAKE_NVML_LACKS", c.lacks)
			t.Setenv("FAKE_NVML_ENERGY", c.energy)
			g := openDevices(testenv.FakeNVML(t), fstest.MapFS{})
			if g == nil {
				t.Log("built without llama.cpp")
				return
			}
			g.end()
			g.end()
			var all, more oplog.Readings
			g.appendReadings(&all)
			g.appendReadings(&more)
			got := all.GPUs
			if len(got) < 2 || len(more.GPUs)+len(all.Zones) != 0 {
				t.Fatalf("%+v", got)
			}
			for i, r := range got {
				if r.UsedBytes != 3<<30 || r.TotalBytes != 64<<30 || r.SMMHz != 1755 || r.Name != "Fake GPU" ||
					r.Index != 0 || (r.PCIeRxKBPerS == 34000) != (i%seldom == 0) {
					t.Errorf("%+v", r)
				}
				switch {
				case i == 0:
					if r.WindowNS != 0 || r.EnergySource != "" || r.GPUPercent != -1 {
						t.Errorf("the first: %+v", r)
					}
				case r.WindowNS != r.MonoNS-got[i-1].MonoNS || r.GPUPercent != 87 || r.MemoryPercent != 41:
					t.Errorf("sample %d: %+v", i, r)
				case i == 1 && r.EnergySource != c.source:
					t.Errorf("energy of %q, want %q", r.EnergySource, c.source)
				case r.EnergySource == resource.EnergyCounter && i == 1 && r.WindowJ != 2,
					r.EnergySource == resource.PowerSamples && r.WindowJ != 250.5*float64(r.WindowNS)/1e9:
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestZones: the counters of processors and memory are read from the beginning to the end, past where they begin anew;
// one that may not be read is left out.
func TestZones(t *testing.T) {
	const folder = "sys/class/powercap/intel-rapl:0"
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(folder+"/name", "package-0")
	put(folder+"/max_energy_range_uj", "262143328850")
	put(folder+"/energy_uj", "262143000000")
	put(folder+":0/name", "dram") // without a counter
	d := openDevices("nowhere.so", os.DirFS(root))
	if d == nil {
		t.Fatal("no counter is read")
	}
	put(folder+"/energy_uj", "1171150")
	d.end()
	var got oplog.Readings
	d.appendReadings(&got)
	sum := 0.0
	for i, z := range got.Zones {
		if z.Zone != "package-0" || i > 0 && z.MonoNS-z.WindowNS != got.Zones[i-1].MonoNS {
			t.Errorf("%+v", z)
		}
		sum += z.WindowJ
	}
	if math.Abs(sum-1.5) > 1e-9 {
		t.Errorf("%g J of 1.5: %+v", sum, got.Zones)
	}
}
