package memory

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// oracleType is what testdata/metrics.py works out of a type of region.
type oracleType struct {
	BytesRead      uint64        `json:"bytes_read"`
	BytesWritten   uint64        `json:"bytes_written"`
	Reads          int64         `json:"reads"`
	Writes         int64         `json:"writes"`
	WriteOnce      *float64      `json:"write_once"`
	ReadFreq       *float64      `json:"read_freq"`
	Retention      []float64     `json:"retention"`
	RetentionBytes int64         `json:"retention_bytes"`
	Censored       *float64      `json:"censored"`
	KM             [][2]*float64 `json:"km"` // at a share 0.01 lower, and 0.01 higher
	IAI            []float64     `json:"iai"`
	IAIMean        float64       `json:"iai_mean"`
	Reuse          []float64     `json:"reuse"`
	ReuseMean      float64       `json:"reuse_mean"`
	SetMean        float64       `json:"set_mean"`
	SetMax         int64         `json:"set_max"`
	Locality       float64       `json:"locality"`
}

// randomRows is a trace of five regions of three types, in the order of time.
func randomRows(seed uint64, n int) []row {
	r := rand.New(rand.NewPCG(seed, 11))
	kinds := []memtrace.RegionType{weight, weight, kv, kv, activation}
	var rows []row
	ns := int64(0)
	for range n {
		ns += int64(r.ExpFloat64() * 40e6)
		region := r.IntN(5)
		size := 1 + r.IntN(200)
		offset := r.IntN(1000 - size)
		op := read
		switch k := r.IntN(20); {
		case k < 6:
			op = write
		case k == 6:
			op = memtrace.OpFree
		}
		rows = append(rows, access(ns, op, kinds[region], region+1, region+10, offset, size))
	}
	return rows
}

// TestOracle compares with numpy and pandas, which work every metric out byte by byte from the same files.
func TestOracle(t *testing.T) {
	testenv.Once(t, "TestLongTrace")
	python := testenv.NeedPython(t, "pyarrow.parquet", "pandas", "numpy")
	for seed := range uint64(2) {
		dir := run(t, randomRows(seed, 500), 200)
		out, err := exec.Command(python, filepath.Join("testdata", "metrics.py"), "0.5",
			filepath.Join(dir, rundir.TraceName)).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
		}
		want := map[string]oracleType{}
		if err := json.Unmarshal(out, &want); err != nil {
			t.Fatal(err)
		}
		r := analyze(t, dir, Options{Windows: []time.Duration{time.Second / 2}})
		if len(r.Types) != len(want) || len(want) != 3 {
			t.Fatalf("%d types, want %d", len(r.Types), len(want))
		}
		for i := range r.Types {
			compareOracle(t, strconv.Itoa(int(seed))+" "+r.Types[i].Type, &r.Types[i], want[r.Types[i].Type])
		}
	}
}

func compareOracle(t *testing.T, name string, got *Type, want oracleType) {
	t.Helper()
	if got.BytesRead != want.BytesRead || got.BytesWritten != want.BytesWritten || got.Reads != want.Reads ||
		got.Writes != want.Writes {
		t.Errorf("%s: %+v, want %+v", name, got.Figures, want)
	}
	if got.Retention.Bytes != want.RetentionBytes || got.WorkingSet[0].MaxBytes != want.SetMax {
		t.Errorf("%s: %d bytes kept, at most %d in a window; want %d and %d", name, got.Retention.Bytes,
			got.WorkingSet[0].MaxBytes, want.RetentionBytes, want.SetMax)
	}
	exact := func(what string, got, want *float64) {
		t.Helper()
		if (got == nil) != (want == nil) || got != nil && math.Abs(*got-*want) > 1e-9*math.Abs(*want) {
			t.Errorf("%s: %s %v, want %v", name, what, got, want)
		}
	}
	exact("write-once", got.WriteOnce, want.WriteOnce)
	exact("read frequency", got.ReadFrequency, want.ReadFreq)
	exact("censored share", &got.Retention.CensoredShare, want.Censored)
	exact("IAI", &got.IAI.Mean, &want.IAIMean)
	exact("reuse", &got.Reuse.Mean, &want.ReuseMean)
	exact("working set", &got.WorkingSet[0].MeanBytes, &want.SetMean)
	exact("locality", got.Locality, &want.Locality)
	near := func(what string, got float64, want float64) { // values of a bucket are at most 1/64 apart
		t.Helper()
		if got < want*(1-1e-12) || got > want*(1+1.0/64)+1e-12 {
			t.Errorf("%s: %s %v, want %v", name, what, got, want)
		}
	}
	q := got.Retention
	for i, v := range []float64{q.P50, q.P90, q.P99} {
		near("retention", v, want.Retention[i])
	}
	for i, v := range []*int64{got.IAI.P50, got.IAI.P90, got.IAI.P99} {
		near("IAI", float64(*v), want.IAI[i])
	}
	for i, v := range []*int64{got.Reuse.P50, got.Reuse.P90, got.Reuse.P99} {
		near("reuse", float64(*v), want.Reuse[i])
	}
	for i, v := range []*float64{q.KM50, q.KM90, q.KM99} {
		low, high := want.KM[i][0], want.KM[i][1]
		switch {
		case v == nil && high != nil, v != nil && low == nil:
			t.Errorf("%s: Kaplan and Meier %v, want %v to %v", name, v, low, high)
		case v != nil && *v < *low*(1-1.0/64), v != nil && high != nil && *v > *high*(1+1.0/64):
			t.Errorf("%s: Kaplan and Meier %v, want %v to %v", name, *v, *low, *high)
		}
	}
}
