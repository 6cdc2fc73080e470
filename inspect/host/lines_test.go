package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// snapshot is a line with one request on a device in slot 3, 4 to 7 µs.
func snapshot(time float64) string {
	return fmt.Sprintf(
		`{"timestamp":%v,"interval_s":5,"latency_histogram":[{"device_id":7,"device_name":"sda","total":1,`+
			`"buckets":[{"slot":3,"count":1,"bucket_low":4,"bucket_high":7}]}],"inflight":[]}`, time)
}

// TestLines reads files in every state in which writers leave them.
func TestLines(t *testing.T) {
	good, nul := snapshot(10), strings.Repeat("\x00", 4096)
	for name, c := range map[string]struct {
		text      string
		snapshots int64
		bad       []int64
		why       string
		torn      bool
		padding   int64
	}{
		"whole":           {good + "\n" + good + "\n", 2, nil, "", false, 0},
		"no newline":      {good + "\n" + good, 2, nil, "", false, 0},
		"torn":            {good + "\n" + good[:60], 1, nil, "", true, 0},
		"byte order mark": {"\xef\xbb\xbf" + good + "\r\n" + good + "\r\n", 2, nil, "", false, 0},
		"padding before":  {nul + good + "\n", 1, nil, "", false, 4096},
		"padding behind":  {good + "\n" + nul, 1, nil, "", false, 4096},
		"empty lines":     {"\n" + good + "\n \n\n" + good + "\n", 2, nil, "", false, 0},
		"bad lines": {good + "\n{nope}\n" + good + "\n[1]\n7\n{}\n" + good + "\n", 3, []int64{2, 4, 5, 6},
			"invalid character 'n'", false, 0},
		"too long": {good + "\n" + `{"x":"` + strings.Repeat("x", maxLine) + "\"}\n" + good + "\n", 2,
			[]int64{2}, "longer than", false, 0},
		"long, not too":     {`{"x":"` + strings.Repeat("x", 1<<20) + `",` + good[1:] + "\n", 1, nil, "", false, 0},
		"torn in the midst": {good[:40] + good + "\n" + good + "\n", 1, []int64{1}, "invalid character", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := analyzed(t, Options{Block: put(t, t.TempDir(), "b.jsonl", c.text)})
			b := r.Block
			if b.Snapshots != c.snapshots || !reflect.DeepEqual(b.BadAt, c.bad) || !strings.Contains(b.BadWhy, c.why) ||
				(b.TornBytes > 0) != c.torn || b.Padding != c.padding {
				t.Errorf("got %+v", b)
			}
			if r.All.Requests != uint64(c.snapshots) {
				t.Errorf("%d requests", r.All.Requests)
			}
			if warned := len(r.Warnings) == 1; warned != (len(c.bad) > 0 || c.torn) || len(r.Warnings) > 1 {
				t.Errorf("warnings %q", r.Warnings)
			}
			for _, n := range c.bad {
				if !strings.Contains(r.Warnings[0], fmt.Sprint(n)) {
					t.Errorf("%q does not name line %d", r.Warnings[0], n)
				}
			}
		})
	}
}

// TestEndlessLine gives up in a file whose line has no end, in bounded time, and keeps what was read before.
func TestEndlessLine(t *testing.T) {
	path := put(t, t.TempDir(), "b.jsonl", snapshot(10)+"\n")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	r := analyzed(t, Options{Block: path})
	if b := r.Block; b.Snapshots != 1 || !reflect.DeepEqual(b.BadAt, []int64{2}) ||
		!strings.Contains(b.BadWhy, "not read further") || len(r.Warnings) != 1 {
		t.Errorf("got %+v, warnings %q", b, r.Warnings)
	}
}

func TestManyBadLines(t *testing.T) {
	r := analyzed(t, Options{Block: put(t, t.TempDir(), "b.jsonl",
		snapshot(1)+"\n"+strings.Repeat("?\n", 100)+snapshot(2)+"\n")})
	if r.Block.Bad != 100 || len(r.Block.BadAt) != maxBadTold || !strings.Contains(r.Warnings[0], "100 lines are") ||
		!strings.Contains(r.Warnings[0], "and 90 more") {
		t.Errorf("%+v %q", r.Block, r.Warnings)
	}
}

// TestTolerance reads fields of wrong types, as if they were not there.
func TestTolerance(t *testing.T) {
	text := `{"timestamp":"12.5","interval_s":null,"interval_actual_s":2,
		"latency_histogram":[5,null,{"device_id":"8","device_name":3,"total":"x",
		"buckets":[{"slot":"2","count":3},{"slot":99,"count":1},{"slot":-1,"count":1},{"slot":1.5,"count":1},
			{"count":4},"no",{"slot":1,"count":-5}]},
		{"device_name":7}],"inflight":{"not":"a list"}}`
	var b bounds
	s, err := parseBlock([]byte(text), false, &b)
	if err != nil || s.time != 12.5 || s.seconds != 2 || len(s.devices) != 1 || s.devices[0].requests != 3 ||
		!reflect.DeepEqual(s.devices[0].latency, Latency{0, 0, 3}) {
		t.Fatalf("%+v %v", s, err)
	}
	if b.unusable != 4 || b.slotless != 1 {
		t.Errorf("%+v", b)
	}
	text = `{"iso_timestamp":"2026-11-21T10:00:00.5+00:00","off_cpu_ns":{"1":"2000000","2":[],"3":1e6},"page_faults":7,
		"pressure":{"cpu":{"full":{"avg60":4}},"io":[],"memory":{"some":{"avg10":"x","avg300":"0.25"}}}}`
	m, err := parseSystem([]byte(text))
	if err != nil || m.time != 1795255200.5 || m.metric[metricOffCPU] != 3 || m.metric[metricCPU] != 4 ||
		m.metric[metricMemory] != 0.25 {
		t.Fatalf("%+v %v", m, err)
	}
	if m.metric[metricFaults] == m.metric[metricFaults] || m.metric[metricIO] == m.metric[metricIO] {
		t.Errorf("what is no figure is known: %v", m.metric)
	}
}

// TestWrongFiles demands that a file which cannot be analysed is an error that says what to do.
func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	block, system := put(t, dir, "b.jsonl", snapshot(1)+"\n"),
		put(t, dir, "s.jsonl", `{"timestamp":1,"off_cpu_ns":{}}`+"\n")
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no block":  {Options{Block: filepath.Join(dir, "none")}, "'llamatap host block'"},
		"no system": {Options{Block: block, System: filepath.Join(dir, "none")}, "'llamatap host system'"},
		"empty":     {Options{Block: put(t, dir, "empty", "")}, "let the recorder run"},
		"other": {Options{Block: put(t, dir, "other", "hello\nworld\n")},
			"no snapshots of block I/O in 2 lines"},
		"system as block": {Options{Block: system}, "--system-metrics"},
		"block as system": {Options{Block: block, System: block}, "--input"},
	} {
		_, err := Analyze(c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if missing := strings.HasPrefix(name, "no "); missing != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v: is it fs.ErrNotExist?", name, err)
		}
	}
	o := Options{}
	if err := o.InRun(dir); err == nil || !strings.Contains(err.Error(), "--tap-host") {
		t.Errorf("a folder without recordings: %v", err)
	}
	put(t, dir, ".block_io.jsonl.part", "")
	put(t, dir, "system_metrics.jsonl", "")
	if err := o.InRun(dir); err != nil || filepath.Base(o.Block) != ".block_io.jsonl.part" ||
		filepath.Base(o.System) != "system_metrics.jsonl" {
		t.Errorf("%+v %v", o, err)
	}
}

// FuzzBlock demands that no line of block I/O breaks the reader, and that what was read can be reported.
func FuzzBlock(f *testing.F) {
	block, system := made{devices: 2, snapshots: 2, interval: 5, begin: 1e9}.build()
	for _, line := range append(block, system[0], snapshot(1),
		`{"latency_histogram":null,"inflight":[{"device_id":1e300,"count":1e300}]}`) {
		f.Add([]byte(line), false)
		f.Add([]byte("\xef\xbb\xbf\x00"+line+"\n"+line), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, strap bool) {
		a := &state{Options: Options{Percentiles: []float64{99}, Strap: strap}, report: &Report{Block: &Source{}},
			devices: newDevices(99)}
		err := readLines(bytes.NewReader(text), &a.report.Block.Lines, func(line []byte) error {
			s, err := parseBlock(line, strap, &a.bounds)
			if err == nil {
				a.report.Block.addSnapshot(s.time, s.seconds)
				a.report.Block.addRecording(&s.how, s.offset)
				a.devices.add(s)
				a.devices.addSnapshot(s)
				a.ops.add(s.line)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, a)
	})
}

// FuzzSystem does the same with system metrics.
func FuzzSystem(f *testing.F) {
	block, system := made{devices: 1, snapshots: 2, interval: 1, begin: 1e9}.build()
	for _, line := range append(system, block[0],
		`{"timestamp":1e300,"interval_s":-1,"off_cpu_ns":{"":1e300,"x":-1},"pressure":{"cpu":{"some":{}}},`+
			`"threads":[{"tid":1e99,"comm":"\u0007"}]}`) {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a := &state{Options: Options{Percentiles: []float64{99}}, report: &Report{System: &Source{}},
			devices: newDevices(99)}
		err := readLines(bytes.NewReader(text), &a.report.System.Lines, func(line []byte) error {
			s, err := parseSystem(line)
			if err == nil {
				a.report.System.addSnapshot(s.time, s.seconds)
				a.report.System.addRecording(&s.how, s.offset)
				a.countIDs(s)
				a.metrics = append(a.metrics, metricSample{s.time, s.seconds, s.metric})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, a)
	})
}
