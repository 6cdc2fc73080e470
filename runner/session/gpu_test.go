//go:build linux

package session

import (
	"errors"
	"testing"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestGPU: a GPU is sampled at the beginning, and at the end for the window between.
func TestGPU(t *testing.T) {
	if _, err := nvml.Open("nowhere.so"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if openGPUs("libnvidia-ml-that-is-nowhere.so.1") != nil {
		t.Error("a GPU without NVML")
	}
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
		if r.Percent != 87 || r.MemoryPercent != 41 || r.Used != 3<<30 || r.Total != 64<<30 || r.PowerMW != 250_500 ||
			r.Name != "Fake GPU" || r.Index != 0 {
			t.Errorf("%+v", r)
		}
		if i == 0 && (r.WindowNS != 0 || r.EnergyMJ != -1) || i > 0 &&
			(r.WindowNS != r.MonoNS-got[i-1].MonoNS || r.EnergyMJ != 2000) {
			t.Errorf("sample %d: %+v", i, r)
		}
	}
}
