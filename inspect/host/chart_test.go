package host

import (
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// report is of a recording that never was: load that rises and falls on each device, and a gap in the time.
func report(t testing.TB, devices, snapshots int) *Report {
	t.Helper()
	dir := t.TempDir()
	var block, system strings.Builder
	for i := range snapshots {
		now := 1790000000 + 5*float64(i)
		if i > snapshots/2 {
			now += 60
		}
		load := 1 + math.Sin(float64(i)/9)
		latency, inFlight := []any{}, []any{}
		for d := range devices {
			name := fmt.Sprintf("nvme%dn1", d)
			buckets := []any{}
			for slot, n := range []float64{5, 30, 200, 400 * load, 150 * load, 20 * load * load, 4 * load * load} {
				if int(n) > 0 {
					buckets = append(buckets, map[string]any{"slot": slot + 5 + int(2*load), "count": int(n) * (d + 1)})
				}
			}
			if d == 1 && i%50 < 10 { // idle now and then
				continue
			}
			latency = append(latency, map[string]any{"device_id": 259<<20 + d, "device_name": name, "buckets": buckets})
			inFlight = append(inFlight, map[string]any{"device_id": 259<<20 + d, "device_name": name,
				"count": int(8 * load)})
		}
		line := func(to *strings.Builder, o map[string]any) {
			o["timestamp"], o["interval_s"] = now, 5
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			to.Write(append(text, '\n'))
		}
		line(&block, map[string]any{"latency_histogram": latency, "inflight": inFlight})
		some := func(v float64) any { return map[string]any{"some": map[string]any{"avg10": v}} }
		line(&system, map[string]any{"off_cpu_ns": map[string]any{"101": int(3e9 * load), "7": int(1e8 * float64(i%7)),
			"9": 5e8},
			"page_faults": map[string]any{"101": 50 * (i % 11), "5": 1},
			"pressure":    map[string]any{"io": some(20 * load), "cpu": some(3 + float64(i%5)), "memory": some(0)},
			"threads": []any{map[string]any{"tid": 101, "tgid": 101, "comm": "llama-cli",
				"runnable_wait_ns": int(1e9 * load), "blocked_disk_ns": int(2e9 * load)}}})
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r, err := Analyze(Options{Block: write("block.jsonl", block.String()),
		System: write("system.jsonl", system.String()), Lag: 2})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drawn draws all charts and returns their pictures by file name.
func drawn(t testing.TB, r *Report, types ...string) map[string]*image.RGBA {
	t.Helper()
	dir := t.TempDir()
	if types == nil {
		types = ChartTypes
	}
	paths, err := DrawCharts(r, dir, types, []string{"png"})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(paths) {
		t.Fatalf("%d files, %d reported, %v", len(entries), len(paths), err)
	}
	all := map[string]*image.RGBA{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(file)
		file.Close()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		flat := image.NewRGBA(picture.Bounds()) // whose pixels are quickly read
		draw.Draw(flat, flat.Rect, picture, image.Point{}, draw.Src)
		all[filepath.Base(path)] = flat
	}
	return all
}

// The pictures of one device and of the recording.
var (
	ofOne = []string{"nvme0n1-id271581184_latency_heatmap.png", "nvme0n1-id271581184_latency_hist.png",
		"nvme0n1-id271581184_latency_percentiles.png",
		"nvme0n1-id271581184_qdepth_iops.png", "nvme0n1-id271581184_queue_depth.png",
		"nvme0n1-id271581184_requests.png"}
	ofAll = []string{"importance_correlations.png", "importance_offcpu_top_pids.png",
		"importance_page_faults_top_pids.png", "importance_trends.png"}
)

// sketch is the mean lightness, from 0 to 99, of the fields of a picture, 30 beside each other and 12 above each other.
func sketch(picture *image.RGBA) (rows []string) {
	const columns, lines = 30, 12
	b := picture.Bounds()
	for line := range lines {
		var row strings.Builder
		for column := range columns {
			sum, n := 0.0, 0.0
			for y := b.Dy() * line / lines; y < b.Dy()*(line+1)/lines; y++ {
				for x := b.Dx() * column / columns; x < b.Dx()*(column+1)/columns; x++ {
					p := picture.Pix[picture.PixOffset(x, y):]
					sum += 0.3*float64(p[0]) + 0.59*float64(p[1]) + 0.11*float64(p[2])
					n++
				}
			}
			fmt.Fprintf(&row, "%02d ", int(sum/n/255*99+0.5))
		}
		rows = append(rows, strings.TrimSpace(row.String()))
	}
	return rows
}

// TestCharts draws every chart and compares its sketch with the golden one, which was made of pictures that were
// looked at.
func TestCharts(t *testing.T) {
	pictures := drawn(t, report(t, 1, 100))
	path := filepath.Join("testdata", "sketches.json")
	golden, got := map[string][]string{}, map[string][]string{}
	for name, picture := range pictures {
		got[name] = sketch(picture)
	}
	if *update {
		text, _ := json.MarshalIndent(got, "", " ")
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Clone(ofOne), ofAll...) {
		picture := pictures[name]
		if picture == nil {
			t.Errorf("%s was not drawn", name)
			continue
		}
		if size := picture.Bounds().Size(); size.X != 1500 || size.Y < 250 || !strings.HasPrefix(name, "importance") &&
			name != ofOne[3] && size.Y != 600 {
			t.Errorf("%s: %v pixels", name, size)
		}
		if worst := apart(golden[name], got[name]); worst > 8 {
			t.Errorf("%s: a field is %d of 99 lighter or darker than it was: look at the picture, then use -update",
				name, worst)
		}
	}
	if len(pictures) != len(ofOne)+len(ofAll) {
		t.Errorf("%d pictures", len(pictures))
	}
}

// apart is how much the fields of two sketches differ at most.
func apart(a, b []string) (worst int) {
	if len(a) != len(b) {
		return 99
	}
	for i := range a {
		var x, y [30]int
		for k, text := range strings.Fields(a[i]) {
			fmt.Sscan(text, &x[k])
		}
		for k, text := range strings.Fields(b[i]) {
			fmt.Sscan(text, &y[k])
		}
		for k := range x {
			worst = max(worst, x[k]-y[k], y[k]-x[k])
		}
	}
	return worst
}

// share is which part of the pixels satisfies a condition.
func share(picture *image.RGBA, is func(r, g, b int) bool) float64 {
	n := 0
	for i := 0; i < len(picture.Pix); i += 4 {
		if is(int(picture.Pix[i]), int(picture.Pix[i+1]), int(picture.Pix[i+2])) {
			n++
		}
	}
	return float64(n) / float64(len(picture.Pix)/4)
}

func coloured(r, g, b int) bool { return max(r, g, b)-min(r, g, b) > 40 }

// TestManyAndFew draws what is hard to draw: one snapshot, eight devices, far more snapshots than columns. Nothing
// is blank, and nothing stands over the edge.
func TestManyAndFew(t *testing.T) {
	for name, c := range map[string]struct {
		devices, snapshots, want int
		types                    []string
	}{
		"one snapshot":  {1, 1, 8, nil}, // which is no trend, and has no correlation
		"two snapshots": {1, 2, 9, nil},
		"eight devices": {8, 20, 8 + 4, []string{"percentiles", "importance"}},
		"long":          {1, 2000, 10, nil},
	} {
		if testing.Short() && name != "one snapshot" {
			continue
		}
		pictures := drawn(t, report(t, c.devices, c.snapshots), c.types...)
		if len(pictures) != c.want {
			t.Errorf("%s: %d pictures, want %d", name, len(pictures), c.want)
		}
		for file, picture := range pictures {
			least := 0.002 // a curve, or levels; a dot has a hundredth of that
			if strings.Contains(file, "trends") && c.snapshots == 2 {
				least = 0.0005
			}
			if s := share(picture, coloured); s < least || s > 0.9 {
				t.Errorf("%s: %s: %.5f of it is coloured", name, file, s)
			}
			b := picture.Bounds()
			for y := range b.Dy() {
				for _, x := range []int{0, b.Dx() - 1} {
					if r, g, bl, _ := picture.At(x, y).RGBA(); r+g+bl != 3*0xffff {
						t.Fatalf("%s: %s: something stands at the edge, at %d, %d", name, file, x, y)
					}
				}
			}
		}
	}
}

// TestLevels: in a short recording a snapshot is a line over its interval, though none beside it has a value; lines
// of intervals that touch are joined.
func TestLevels(t *testing.T) {
	nan := math.NaN()
	var series []Point
	for i, from := range []float64{0, 5, 10, 60} {
		series = append(series, Point{From: from, Time: from + 5, Seconds: 5, Snapshots: 1, Requests: uint64(i)})
	}
	known := func(p *Point) float64 {
		if p.Requests == 1 || p.Requests == 3 {
			return float64(p.Requests)
		}
		return nan
	}
	x, y := values(series, newClock(0, 65), known)
	if want := []float64{0, 5, 5, 10, 10, 15, 60, 60, 65}; !slices.Equal(x, want) {
		t.Errorf("%v, want %v", x, want)
	}
	if want := []float64{nan, nan, 1, 1, nan, nan, nan, 3, 3}; !slices.EqualFunc(y, want,
		func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }) {
		t.Errorf("%v, want %v", y, want)
	}
	if curve(series, x, y, sheet.Blue, 1).IsDots {
		t.Error("levels have dots")
	}
}

// TestStale: a chart of an earlier call that there is nothing to draw for now is removed.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "importance_trends.png")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := DrawCharts(report(t, 1, 1), dir, []string{"importance"}, []string{"png"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the old chart is still there: %v", err)
	}
}

// TestForms: charts are written in the forms that are asked for, SVG without fonts in it, and those of an earlier
// call in others are removed.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	if _, err := DrawCharts(report(t, 1, 3), dir, []string{"hist"}, sheet.Forms); err != nil {
		t.Fatal(err)
	}
	paths, err := DrawCharts(report(t, 1, 3), dir, []string{"hist"}, []string{"svg", "pdf"})
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(paths) != 2 || len(left) != 2 {
		t.Fatalf("%q, in the folder %q, %v", paths, left, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "nvme0n1-id271581184_latency_hist.svg"))
	if err != nil || !strings.Contains(string(text), "nvme0n1: latency of block requests") ||
		strings.Contains(string(text), "@font-face") || len(text) > 200<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "nvme0n1-id271581184_latency_hist.pdf")); err != nil ||
		!strings.HasPrefix(string(text), "%PDF-") {
		t.Errorf("%.5q, %v", text, err)
	}
}

// TestNothing draws what there is when nothing happened: no pictures, and no errors.
func TestNothing(t *testing.T) {
	for name, c := range map[string][2]string{
		"no devices": {`{"timestamp":1,"interval_s":5,"latency_histogram":[],"inflight":[]}`,
			`{"timestamp":1,"off_cpu_ns":{}}`},
		"no times": {`{"latency_histogram":[{"device_id":1,"buckets":[{"slot":4,"count":2}]}],"inflight":[]}`,
			`{"timestamp":1,"page_faults":{}}`},
		"no requests": {`{"timestamp":1,"latency_histogram":[],"inflight":[{"device_id":1,"count":0}]}`,
			`{"timestamp":1,"pressure":{}}`},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"b": c[0], "s": c[1]} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Analyze(Options{Block: filepath.Join(dir, "b"), System: filepath.Join(dir, "s")})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(name, len(drawn(t, r)))
	}
	if _, err := DrawCharts(report(t, 1, 1), "/dev/null/x", ChartTypes, []string{"png"}); err == nil {
		t.Error("a folder that cannot be")
	}
}

func TestTicks(t *testing.T) {
	labels := func(ticks sheet.Fixed) (all []string) {
		for _, tick := range ticks {
			if tick.Label != "" {
				all = append(all, tick.Label)
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		got  sheet.Fixed
		want string
	}{
		"decades": {latencyTicks(1, 2e7), "1 µs,10 µs,100 µs,1 ms,10 ms,100 ms,1 s,10 s"},
		"short":   {latencyTicks(40, 600), "50 µs,100 µs,200 µs,500 µs"},
		"below 1": {latencyTicks(0.5, 8), "0.5 µs,1 µs,2 µs,5 µs"},
		"steps":   {sheet.Steps(0, 10, 5), "0,2,4,6,8,10"},
		"halves":  {sheet.Steps(0, 1.08, 5), "0,0.5,1"},
		"large":   {sheet.Steps(0, 2.4e7, 5), "0,5 M,10 M,15 M,20 M"},
		"zero":    {sheet.Steps(-0.5, 0.5, 10)[5:6], "0"},
		"nothing": {sheet.Steps(1, 1, 5), "1"},
	} {
		if got := strings.Join(labels(c.got), ","); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestParseTypes(t *testing.T) {
	for list, want := range map[string]string{"": strings.Join(ChartTypes, ","), "all": strings.Join(ChartTypes, ","),
		"hist, Queue,hist": "hist,queue", "x,all": `"x"`, "hist,bogus": `"bogus"`} {
		got, err := ParseChartTypes(list)
		if text := strings.Join(got, ","); err == nil && text != want || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v", list, text, err)
		}
	}
	for name, want := range map[string]string{"nvme0n1": "nvme0n1", "Virtual Disk/1": "virtual-disk-1", "?": "device",
		"../x": "x"} {
		if got := slug(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
