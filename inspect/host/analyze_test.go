package host

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files anew")

// write finishes an analysis and writes it in both forms.
func write(t testing.TB, a *state) {
	t.Helper()
	a.finish()
	var text bytes.Buffer
	if err := a.report.WriteText(&text); err != nil || !utf8.Valid(text.Bytes()) {
		t.Fatalf("%v\n%q", err, text.String())
	}
	if _, err := json.Marshal(a.report); err != nil {
		t.Fatal(err)
	}
}

// TestGolden compares text and JSON of an analysis with golden files.
func TestGolden(t *testing.T) {
	for name, c := range map[string]struct {
		made made
		set  func(*Options)
	}{
		"strap": {made{devices: 2, snapshots: 60, interval: 5, strap: true, begin: 1790000000},
			func(o *Options) { o.Lag = 2 }},
		"one": {made{devices: 1, snapshots: 20, interval: 1, begin: 1790000000},
			func(o *Options) { o.Percentiles = []float64{50, 90, 99.9} }},
		"window": {made{devices: 2, snapshots: 60, interval: 5, begin: 1790000000},
			func(o *Options) { o.Window = 30; o.Top = 1 }},
		"nothing": {made{devices: 0, snapshots: 3, interval: 5, begin: 1790000000}, func(o *Options) { o.System = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.made.write(t)
			c.set(&o)
			r := analyzed(t, o)
			for _, s := range []*Source{r.Block, r.System} {
				if s != nil {
					s.Path = filepath.Base(s.Path)
				}
			}
			var text, js bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			encoder := json.NewEncoder(&js)
			encoder.SetIndent("", " ")
			if err := encoder.Encode(r); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.Bytes())
			golden(t, name+".json", figures.ReplaceAllFunc(js.Bytes(), rounded))
		})
	}
}

// figures are those with many digits, of which the last are another processor's own.
var figures = regexp.MustCompile(`-?\d+\.\d{6,}(e[-+]\d+)?`)

func rounded(text []byte) []byte {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		panic(err)
	}
	return strconv.AppendFloat(nil, v, 'g', 9, 64)
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
	}
}

// TestBounds gives the same recording with right bounds, with STRAP-LLM's, and without slots: the figures are the same.
func TestBounds(t *testing.T) {
	m := made{devices: 1, snapshots: 10, interval: 5, begin: 1790000000}
	right := analyzed(t, m.write(t))
	m.strap = true
	o := m.write(t)
	inflated := analyzed(t, o)
	if right.Bounds.Right == 0 || right.Bounds.Corrected != 0 || inflated.Bounds.Corrected != right.Bounds.Right ||
		inflated.Bounds.Right != 0 {
		t.Errorf("right %+v, STRAP-LLM's %+v", right.Bounds, inflated.Bounds)
	}
	text, err := os.ReadFile(o.Block)
	if err != nil {
		t.Fatal(err)
	}
	slotless := Options{Block: put(t, t.TempDir(), "b.jsonl", strings.ReplaceAll(string(text), `"slot"`, `"was"`)),
		System: o.System}
	doubled := analyzed(t, slotless)
	slotless.Strap = true
	halved := analyzed(t, slotless)
	for name, r := range map[string]*Report{"inflated": inflated, "halved": halved} {
		if !reflect.DeepEqual(r.All.Buckets, right.All.Buckets) ||
			!reflect.DeepEqual(r.All.Percentiles, right.All.Percentiles) {
			t.Errorf("%s: %+v, want %+v", name, r.All, right.All)
		}
	}
	if a, b := doubled.All.Percentiles[2].AtMostUS, right.All.Percentiles[2].AtMostUS; a != 2*b+1 ||
		*doubled.All.MeanUS < 1.9**right.All.MeanUS {
		t.Errorf("bounds as they stand: p99 %d, want %d", a, 2*b+1)
	}
	if !halved.Bounds.TakenAsStrap || doubled.Bounds.TakenAsStrap || doubled.Bounds.WithoutSlot == 0 {
		t.Errorf("%+v, %+v", halved.Bounds, doubled.Bounds)
	}
	for slot := range 40 {
		for _, strap := range []bool{false, true} {
			low, high := float64(slotLow(slot)), float64(slotHigh(slot))
			if strap {
				low, high = math.Exp2(float64(slot)), math.Exp2(float64(slot+1))-1
				if slot == 0 {
					low = 0
				}
			}
			if got, ok := slotFrom(low, high, strap); got != slot || !ok {
				t.Errorf("slot %d, strap %v: %d %v", slot, strap, got, ok)
			}
		}
	}
}

// TestFormulas checks A-81's formulas on figures that can be added up in the head.
func TestFormulas(t *testing.T) {
	l := Latency{0, 0, 10, 80, 0, 10} // 2 to 3, 4 to 7, 16 to 31 µs
	if mean, _ := l.Mean(); mean != (2.5*10+5.5*80+23.5*10)/100 {
		t.Errorf("mean %v", mean)
	}
	for p, want := range map[float64]int{1: 2, 10: 2, 10.5: 3, 50: 3, 90: 3, 91: 5, 100: 5} {
		if slot, ok := l.Percentile(p); slot != want || !ok {
			t.Errorf("p%v in slot %d, want %d", p, slot, want)
		}
	}
	if _, ok := (Latency{}).Percentile(50); ok {
		t.Error("a percentile of nothing")
	}
	line := func(time int, total, depth int) string {
		return `{"timestamp":` + string(rune('0'+time)) +
			`,"interval_s":2,"latency_histogram":[{"device_id":1,"device_name":"a","buckets":[{"slot":1,"count":` +
			string(rune('0'+total)) + `}]}],"inflight":[{"device_id":1,"count":` + string(rune('0'+depth)) +
			`},{"device_id":2,"count":1}]}` + "\n"
	}
	r := analyzed(t, Options{Block: put(t, t.TempDir(), "b", line(2, 4, 0)+line(4, 8, 6))})
	a, b := r.Devices[0], r.Devices[1]
	if a.Requests != 12 || *a.PerSecond != 3 || *a.PeakPerSecond != 4 || a.Queue.Mean != 3 || a.Queue.Max != 6 ||
		a.Percentiles[0].AtMostUS != 1 {
		t.Errorf("%+v %+v", a, a.Queue)
	}
	if b.Requests != 0 || b.MeanUS != nil || b.Percentiles != nil || b.Queue.Mean != 1 {
		t.Errorf("%+v", b)
	}
}

// TestManySnapshots reads more snapshots, devices and ids than are kept: sums are exact, and what is kept is bounded.
func TestManySnapshots(t *testing.T) {
	const n = 4000
	var block, system strings.Builder
	for i := range n {
		block.WriteString(strings.Replace(snapshot(float64(1000+5*i)), `"device_id":7`,
			`"device_id":`+string(rune('1'+i%3)), 1) + "\n")
		system.WriteString(`{"timestamp":` + jsonNumber(1000+5*i) + `,"off_cpu_ns":{`)
		for k := range 10 {
			system.WriteString(`"` + jsonNumber(10*i+k) + `":` + jsonNumber(1+k) + `,`)
		}
		system.WriteString(`"1":1000000000}}` + "\n")
	}
	dir := t.TempDir()
	r := analyzed(t, Options{Block: put(t, dir, "b", block.String()), System: put(t, dir, "s", system.String()),
		Lag: 1})
	var requests, snapshots uint64
	for _, p := range r.All.Series {
		requests, snapshots = requests+p.Requests, snapshots+uint64(p.Snapshots)
	}
	if r.All.Requests != n || requests != n || snapshots != n || len(r.All.Series) > maxPoints ||
		len(r.All.Series) < maxPoints/3 {
		t.Errorf("%d requests, in %d points %d of %d snapshots", r.All.Requests, len(r.All.Series), requests, snapshots)
	}
	if top := r.OffCPU.Top[0]; top.ID != "1" || top.Value != n*1000 || r.OffCPU.Forgotten == 0 ||
		r.OffCPU.IDs > maxIDs {
		t.Errorf("%+v of %d ids, %d forgotten", top, r.OffCPU.IDs, r.OffCPU.Forgotten)
	}
	if len(r.Importance.Trend) > maxPoints || r.Importance.Rows[0].N != n {
		t.Errorf("%d moments of %+v", len(r.Importance.Trend), r.Importance.Rows[0])
	}
}

func jsonNumber(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// TestManyDevices keeps apart as many devices as it may, and counts the others in the whole.
func TestManyDevices(t *testing.T) {
	var text strings.Builder
	for i := range maxDevices + 50 {
		text.WriteString(strings.Replace(snapshot(float64(i)), `"device_id":7`, `"device_id":`+jsonNumber(i), 1) + "\n")
	}
	r := analyzed(t, Options{Block: put(t, t.TempDir(), "b", text.String())})
	if len(r.Devices) != maxDevices || r.DeviceCount != maxDevices+50 || r.All.Requests != maxDevices+50 ||
		!strings.Contains(strings.Join(r.Notes, " "), "50 further devices") {
		t.Errorf("%d of %d devices, %d requests, %q", len(r.Devices), r.DeviceCount, r.All.Requests, r.Notes)
	}
}
