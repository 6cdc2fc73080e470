package host

import (
	"bytes"
	"strings"
	"testing"
)

// profLines are two intervals of events with figures that can be added up in the head, and one event as A's
// llm-prof writes it.
const profLines = `{"ts_ns":1000000000,"type":"syscall","syscall":"read","count":10,"errors":1,"bytes":4096,` +
	`"lat_avg_us":100,"lat_max_us":400,"open":2,"interval_s":1,"labels":{},"corr_id":null,` +
	`"latency_ns":[{"low_ns":65536,"high_ns":131071,"count":9},{"low_ns":262144,"high_ns":524287,"count":1}]}` + "\n" +
	`{"ts_ns":1000000000,"type":"sync","syscall":"futex","op":"wait","count":4,"lat_avg_us":2500,"interval_s":1,` +
	`"labels":{}}` + "\n" +
	`{"ts_ns":1000000000,"type":"net","pid":7,"comm":"server","tx_bytes":100,"rx_bytes":50,"tx_calls":2,"rx_calls":1,` +
	`"retransmits":3,"interval_s":1}` + "\n" +
	`{"ts_ns":2000000000,"type":"syscall","syscall":"read","count":90,"bytes":100,"lat_avg_us":10,"lat_max_us":20,` +
	`"open":1,"interval_s":1,"latency_ns":[{"low_ns":8192,"high_ns":16383,"count":90}]}` + "\n" +
	`{"ts_ns":2000000000,"type":"net","pid":8,"comm":"old","tx_bytes_s":1000,"rx_bytes_s":0,"tx_calls":1,` +
	`"rx_calls":0,"interval_s":2}` + "\n" +
	`{"ts_ns":2000000000,"type":"bogus"}` + "\n" +
	`{"ts_ns":2000000000,"type":"mem","page_faults_total":5}` + "\n"

// TestProf adds up events of host prof.
func TestProf(t *testing.T) {
	r := analyzed(t, Options{Prof: put(t, t.TempDir(), "p", profLines)})
	p := r.Prof
	if p.Snapshots != 2 || p.Bad != 1 || p.Events["syscall"] != 2 || len(p.Calls) != 2 || len(p.Net) != 2 ||
		p.SpacingS != 1 {
		t.Fatalf("%+v", p)
	}
	futex, read := p.Calls[0], p.Calls[1]
	if futex.Syscall != "futex" || futex.Op != "wait" || *futex.TotalMS != 10 || futex.Percentiles != nil {
		t.Errorf("%+v", futex)
	}
	if read.Count != 100 || read.Errors != 1 || read.Bytes != 4196 || *read.TotalMS != 1.9 || *read.MaxUS != 400 ||
		read.Open != 2 {
		t.Errorf("%+v", read)
	}
	for i, want := range []uint64{17, 132, 132} { // p50, p95, p99
		if got := read.Percentiles[i].AtMostUS; got != want {
			t.Errorf("%v: %d, want %d", read.Percentiles[i].Percent, got, want)
		}
	}
	if a, b := p.Net[0], p.Net[1]; a.PID != 8 || a.TXBytes != 2000 || a.Retransmits != nil || b.TXBytes != 100 ||
		*b.Retransmits != 3 {
		t.Errorf("%+v %+v", a, b)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "futex wait") ||
		!strings.Contains(text.String(), "server") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if _, err := Analyze(Options{Prof: put(t, t.TempDir(), "p", "")}); err == nil ||
		!strings.Contains(err.Error(), "no snapshots of events") {
		t.Error(err)
	}
}

// FuzzProf demands that no line of events breaks the reader.
func FuzzProf(f *testing.F) {
	for line := range strings.Lines(profLines) {
		f.Add([]byte(line))
	}
	f.Add([]byte(profLines))
	f.Add([]byte(
		`{"type":"syscall","count":18446744073709551615,"lat_avg_us":1e308,` +
			`"latency_ns":[{"high_ns":18446744073709551615,"count":18446744073709551615}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := newProfSums()
		if err := readLines(bytes.NewReader(text), &p.Lines, p.add); err != nil {
			t.Fatal(err)
		}
		p.finish([]float64{50, 99})
		a := &state{Options: Options{Percentiles: []float64{50, 99}}, report: &Report{Prof: p.Prof},
			devices: newDevices(99)}
		write(t, a)
	})
}
