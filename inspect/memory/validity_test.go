package memory

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// quiet is a run that nothing is held against.
func quiet() Observer {
	return Observer{CPUPct: new(5.0), CPUPeakPct: new(9.9), MemoryPct: new(4.9), ThrottleEvents: new(int64(0)),
		BaselineCPUPct: new(14.9)}
}

// TestJudge puts every bound of the classes and of the allowances to the test, from both sides.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Observer)
		want   Class
	}{
		{"all below", func(*Observer) {}, Clean},
		{"cpu at 10", func(o *Observer) { o.CPUPeakPct = new(10.0) }, Marginal},
		{"cpu below 20", func(o *Observer) { o.CPUPeakPct = new(19.999) }, Marginal},
		{"cpu at 20", func(o *Observer) { o.CPUPeakPct = new(20.0) }, Contaminated},
		{"memory at 5", func(o *Observer) { o.MemoryPct = new(5.0) }, Marginal},
		{"memory below 15", func(o *Observer) { o.MemoryPct = new(14.999) }, Marginal},
		{"memory at 15", func(o *Observer) { o.MemoryPct = new(15.0) }, Contaminated},
		{"one event", func(o *Observer) { o.ThrottleEvents = new(int64(1)) }, Marginal},
		{"two events", func(o *Observer) { o.ThrottleEvents = new(int64(2)) }, Marginal},
		{"three events", func(o *Observer) { o.ThrottleEvents = new(int64(3)) }, Contaminated},
		{"machine at 15", func(o *Observer) { o.BaselineCPUPct = new(15.0) }, Marginal},
		{"machine below 30", func(o *Observer) { o.BaselineCPUPct = new(29.999) }, Marginal},
		{"machine at 30", func(o *Observer) { o.BaselineCPUPct = new(30.0) }, Contaminated},
		{"worst one counts", func(o *Observer) { o.CPUPeakPct, o.MemoryPct = new(12.0), new(40.0) }, Contaminated},
		{"no source of throttling", func(o *Observer) { o.ThrottleEvents = nil }, Marginal},
		{"memory not known", func(o *Observer) { o.MemoryPct = nil }, Marginal},
		{"not a number", func(o *Observer) { o.CPUPeakPct = new(math.NaN()) }, Contaminated},
		{"the mean does not count", func(o *Observer) { o.CPUPct = new(99.0) }, Clean},
		{"memory allowed", func(o *Observer) { o.MemoryPct, o.MemoryBytes = new(70.0), allowedBytes }, Clean},
		{"memory above the allowance", func(o *Observer) { o.MemoryPct, o.MemoryBytes = new(70.0), allowedBytes+1 },
			Contaminated},
		{"much memory, of a large target", func(o *Observer) { o.MemoryPct, o.MemoryBytes = new(4.0), 1<<30 }, Clean},
		{"cpu allowed", func(o *Observer) { o.CPUPeakPct, o.CPUNS.Collector = new(60.0), int64(allowedCPU) },
			Clean},
		{"cpu above the allowance", func(o *Observer) {
			o.CPUPeakPct, o.CPUNS.Collector = new(60.0),
				int64(allowedCPU)+1
		}, Contaminated},
		{"others do not count", func(o *Observer) { o.OthersCPUPct = new(90.0) }, Clean},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := quiet()
			c.change(&o)
			got := Judge(&o)
			if got.Class != c.want || len(got.Criteria) != 4 {
				t.Errorf("%s with %d criteria, want %s: %+v", got.Class, len(got.Criteria), c.want, got.Criteria)
			}
			if (got.Why() == "") != (c.want == Clean) {
				t.Errorf("class %s, why %q", got.Class, got.Why())
			}
		})
	}
}

// TestClassIsMonotone: more of anything never makes a run better.
func TestClassIsMonotone(t *testing.T) {
	steps := []float64{0, 4.9, 5, 9.9, 10, 14.9, 15, 19.9, 20, 29.9, 30, 99}
	for name, set := range map[string]func(*Observer, float64){
		"cpu":      func(o *Observer, v float64) { o.CPUPct = &v },
		"memory":   func(o *Observer, v float64) { o.MemoryPct = &v },
		"throttle": func(o *Observer, v float64) { o.ThrottleEvents = new(int64(v)) },
		"baseline": func(o *Observer, v float64) { o.BaselineCPUPct = &v },
	} {
		before := Clean
		for _, v := range steps {
			o := quiet()
			set(&o, v)
			got := Judge(&o).Class
			if slices.Index(classes, got) < slices.Index(classes, before) {
				t.Errorf("%s: %g is %s, less was %s", name, v, got, before)
			}
			before = got
		}
	}
}

func TestThrottleEvents(t *testing.T) {
	if (&Throttle{}).Events() != nil {
		t.Error("events without a source")
	}
	if n := (&Throttle{Cgroup: new(int64(2)), Frequency: new(int64(3))}).Events(); n == nil || *n != 5 {
		t.Errorf("%v events", n)
	}
}

// TestReadMetadata reads what was written, and refuses what is of another version, not sealed, or something else.
func TestReadMetadata(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := quiet()
	m := Metadata{SchemaVersion: "1.0", Metadata: rundir.Metadata{Version: 1, RunID: "run_1"},
		Cell: Cell{Key: "k", ModelID: "m"}, Observer: o, Validity: Judge(&o)}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(rundir.MetadataName, string(text))
	if _, err := ReadMetadata(dir); !errors.Is(err, ErrNoExperiment) {
		t.Errorf("without manifest: %v", err)
	}
	write(rundir.ManifestName, "{}")
	got, err := ReadMetadata(dir)
	if err != nil || got.RunID != "run_1" || got.Cell.Key != "k" || got.Validity.Class != Clean ||
		*got.Observer.CPUPeakPct != 9.9 {
		t.Errorf("%+v, %v", got, err)
	}
	write(rundir.MetadataName, strings.Replace(string(text), `"1.0"`, `"3.0"`, 1))
	if _, err := ReadMetadata(dir); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), "3.0") {
		t.Errorf("version 3.0: %v", err)
	}
	write(rundir.MetadataName, strings.Replace(string(text), `"1.0"`, `"1.9"`, 1))
	if _, err := ReadMetadata(dir); err != nil {
		t.Errorf("version 1.9: %v", err)
	}
	write(rundir.MetadataName, `{"version":1}`)
	if _, err := ReadMetadata(dir); !errors.Is(err, ErrNoExperiment) {
		t.Errorf("another run: %v", err)
	}
	write(rundir.MetadataName, `{"mrm`)
	if _, err := ReadMetadata(dir); err == nil || !strings.Contains(err.Error(), "llamatap verify") {
		t.Errorf("damaged: %v", err)
	}
}
