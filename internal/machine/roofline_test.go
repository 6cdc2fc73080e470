package machine

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestRooflineIsOfThisMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "roofline.json")
	if _, err := LoadRoofline(path); !errors.Is(err, ErrNoRoofline) {
		t.Errorf("without a file: %v", err)
	}
	r := Roofline{CPU: CPUName(), CPUs: runtime.NumCPU(), Threads: 2, VectorBits: 256, GFLOPsPerS: 300, GBPerS: 30,
		Measured: time.Now().UTC().Truncate(time.Second)}
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadRoofline(path); err != nil || got != r || got.Ridge() != 10 {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*Roofline){
		"of another processor": func(r *Roofline) { r.CPU += "x" },
		"with more processors": func(r *Roofline) { r.CPUs++ },
		"without a rate":       func(r *Roofline) { r.GBPerS = 0 },
	} {
		other := r
		change(&other)
		if err := other.Save(path); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadRoofline(path); !errors.Is(err, ErrNoRoofline) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRoofline(path); err == nil || errors.Is(err, ErrNoRoofline) {
		t.Errorf("damaged: %v", err)
	}
}
