package nvml

import (
	"errors"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

func TestRead(t *testing.T) {
	l, err := Open(testenv.FakeNVML(t))
	if errors.Is(err, errors.ErrUnsupported) && strings.Contains(err.Error(), "built without") {
		t.Log(err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.Devices()
	if err != nil || n != 1 {
		t.Errorf("%d devices, %v", n, err)
	}
	t.Setenv("FAKE_NVML_ENERGY", "10000 12000")
	want := Sample{Name: "Fake GPU", GPUPercent: -1, MemoryPercent: -1, TotalBytes: 64 << 30, UsedBytes: 3 << 30,
		SMMHz: 1755, MemoryMHz: 2619, PCIeTxKBPerS: 1200, PCIeRxKBPerS: 34000, PowerMW: 250_500, EnergyMJ: 10_000,
		untilUS: 1_060_000}
	first, err := l.Read(0, Sample{}, true)
	if err != nil || first != want {
		t.Errorf("the first: %+v, %v", first, err)
	}
	want.GPUPercent, want.MemoryPercent, want.UtilizationNS, want.untilUS = 87, 41, 60e6, 1_120_000
	want.PCIeTxKBPerS, want.PCIeRxKBPerS, want.EnergyMJ = -1, -1, 12_000
	if s, err := l.Read(0, first, false); err != nil || s != want {
		t.Errorf("the next: %+v, %v", s, err)
	}
	if _, err := l.Read(1, Sample{}, true); err == nil {
		t.Error("a GPU that is not there was read")
	}

	t.Setenv("FAKE_NVML_LACKS", "Samples MemoryInfo ClockInfo PcieThroughput PowerUsage TotalEnergyConsumption")
	want = Sample{Name: "Fake GPU", GPUPercent: 80, MemoryPercent: 40, TotalBytes: -1, UsedBytes: -1, SMMHz: -1,
		MemoryMHz: -1, PCIeTxKBPerS: -1, PCIeRxKBPerS: -1, PowerMW: -1, EnergyMJ: -1}
	if s, err := l.Read(0, Sample{}, true); err != nil || s != want {
		t.Errorf("without samples of its own: %+v, %v", s, err)
	}
	want.GPUPercent, want.MemoryPercent = -1, -1
	if s, err := l.Read(0, Sample{}, false); err != nil || s != want {
		t.Errorf("the same, not now: %+v, %v", s, err)
	}
	t.Setenv("FAKE_NVML_LACKS", "Samples MemoryInfo ClockInfo PcieThroughput PowerUsage TotalEnergyConsumption "+
		"UtilizationRates")
	if s, err := l.Read(0, Sample{}, true); err != nil || s != want {
		t.Errorf("a GPU that reports nothing: %+v, %v", s, err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestAbsent: a machine without the library, and a library that is another one, are distinguished from a failure.
func TestAbsent(t *testing.T) {
	for _, name := range []string{"libnvidia-ml-that-is-nowhere.so.1", "libc.so.6"} {
		if _, err := Open(name); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
