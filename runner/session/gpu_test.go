//go:build linux

package session

import (
	"errors"
	"testing"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestGPU: a GPU is sampled at the beginning, and at the end for the window between.
func TestGPU(t *testing.T) {
	if _, err := nvml.Open("nowhere.so"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if openGPUs("libnvidia-ml-that-is-nowhere.so.1") != nil {
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
			g := openGPUs(testenv.FakeNVML(t))
			if g == nil {
				t.Log("built without llama.cpp")
				return
			}
			g.end()
			g.end()
			got := g.take(nil)
			if len(got) < 2 || len(g.take(nil)) != 0 {
				t.Fatalf("%+v", got)
			}
			for i, r := range got {
				if r.UsedBytes != 3<<30 || r.TotalBytes != 64<<30 || r.SMMHz != 1755 || r.Name != "Fake GPU" ||
					r.Index != 0 || (r.PCIeRxKBPerS == 34000) != (i%gpuSeldom == 0) {
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
