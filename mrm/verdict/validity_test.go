package verdict

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

func of(v float64) *float64 { return &v }
func count(n int64) *int64  { return &n }

// quiet is a run that nothing is held against.
func quiet() Observer {
	return Observer{CPUPct: of(5), CPUPeakPct: of(9.9), MemoryPct: of(4.9), ThrottleEvents: count(0),
		BaselineCPUPct: of(14.9)}
}

// TestJudge puts every bound of C-1.C.3 and of decision 13 to the test, from both sides.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Observer)
		want   Class
	}{
		{"all below", func(*Observer) {}, Clean},
		{"cpu at 10", func(o *Observer) { o.CPUPeakPct = of(10) }, Marginal},
		{"cpu below 20", func(o *Observer) { o.CPUPeakPct = of(19.999) }, Marginal},
		{"cpu at 20", func(o *Observer) { o.CPUPeakPct = of(20) }, Contaminated},
		{"memory at 5", func(o *Observer) { o.MemoryPct = of(5) }, Marginal},
		{"memory below 15", func(o *Observer) { o.MemoryPct = of(14.999) }, Marginal},
		{"memory at 15", func(o *Observer) { o.MemoryPct = of(15) }, Contaminated},
		{"one event", func(o *Observer) { o.ThrottleEvents = count(1) }, Marginal},
		{"two events", func(o *Observer) { o.ThrottleEvents = count(2) }, Marginal},
		{"three events", func(o *Observer) { o.ThrottleEvents = count(3) }, Contaminated},
		{"machine at 15", func(o *Observer) { o.BaselineCPUPct = of(15) }, Marginal},
		{"machine below 30", func(o *Observer) { o.BaselineCPUPct = of(29.999) }, Marginal},
		{"machine at 30", func(o *Observer) { o.BaselineCPUPct = of(30) }, Contaminated},
		{"worst one counts", func(o *Observer) { o.CPUPeakPct, o.MemoryPct = of(12), of(40) }, Contaminated},
		{"no source of throttling", func(o *Observer) { o.ThrottleEvents = nil }, Marginal},
		{"memory not known", func(o *Observer) { o.MemoryPct = nil }, Marginal},
		{"not a number", func(o *Observer) { o.CPUPeakPct = of(math.NaN()) }, Contaminated},
		{"the mean does not count", func(o *Observer) { o.CPUPct = of(99) }, Clean},
		{"memory within the allowance", func(o *Observer) { o.MemoryPct, o.MemoryBytes = of(70), allowedBytes }, Clean},
		{"memory above the allowance", func(o *Observer) { o.MemoryPct, o.MemoryBytes = of(70), allowedBytes+1 },
			Contaminated},
		{"much memory, of a large target", func(o *Observer) { o.MemoryPct, o.MemoryBytes = of(4), 1<<30 }, Clean},
		{"cpu within the allowance", func(o *Observer) { o.CPUPeakPct, o.CPUNS.Collector = of(60), int64(allowedCPU) },
			Clean},
		{"cpu above the allowance", func(o *Observer) {
			o.CPUPeakPct, o.CPUNS.Collector = of(60),
				int64(allowedCPU)+1
		}, Contaminated},
		{"others do not count", func(o *Observer) { o.OthersCPUPct = of(90) }, Clean},
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
		"throttle": func(o *Observer, v float64) { o.ThrottleEvents = count(int64(v)) },
		"baseline": func(o *Observer, v float64) { o.BaselineCPUPct = &v },
	} {
		before := Clean
		for _, v := range steps {
			o := quiet()
			set(&o, v)
			got := Judge(&o).Class
			if got.rank() < before.rank() {
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
	if n := (&Throttle{Cgroup: count(2), Frequency: count(3)}).Events(); n == nil || *n != 5 {
		t.Errorf("%v events", n)
	}
}

// TestRead reads what was written, and refuses what is of another version, not sealed, or something else.
func TestRead(t *testing.T) {
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
	if _, err := Read(dir); !errors.Is(err, ErrNotOurs) {
		t.Errorf("without manifest: %v", err)
	}
	write(rundir.ManifestName, "{}")
	got, err := Read(dir)
	if err != nil || got.RunID != "run_1" || got.Cell.Key != "k" || got.Validity.Class != Clean ||
		*got.Observer.CPUPeakPct != 9.9 {
		t.Errorf("%+v, %v", got, err)
	}
	write(rundir.MetadataName, strings.Replace(string(text), `"1.0"`, `"3.0"`, 1))
	if _, err := Read(dir); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), "3.0") {
		t.Errorf("version 3.0: %v", err)
	}
	write(rundir.MetadataName, strings.Replace(string(text), `"1.0"`, `"1.9"`, 1))
	if _, err := Read(dir); err != nil {
		t.Errorf("version 1.9: %v", err)
	}
	write(rundir.MetadataName, `{"version":1}`)
	if _, err := Read(dir); !errors.Is(err, ErrNotOurs) {
		t.Errorf("another run: %v", err)
	}
	write(rundir.MetadataName, `{"mrm`)
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "llamatap verify") {
		t.Errorf("damaged: %v", err)
	}
}
