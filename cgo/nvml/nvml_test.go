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
	want := Sample{Name: "Fake GPU", GPUPercent: 87, MemoryPercent: 41, TotalBytes: 64 << 30, UsedBytes: 3 << 30,
		PowerMW: 250_500, EnergyMJ: 10_000}
	if s, err := l.Read(0); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := l.Read(1); err == nil {
		t.Error("a GPU that is not there was read")
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
