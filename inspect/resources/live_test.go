package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// liveRun is a run that generates two tokens a second for 12 s, of experts, on two devices, with hostile text.
func liveRun() *script {
	s := &script{}
	s.begin(resource.Verbose)
	s.graph("prefill", 4)
	words := []string{" func", " main", "() {\n", "\tprintln(", "\x1b[2J\x9b", "世界", ")\n", "}"}
	for i := range 24 {
		s.ns += 5e8
		s.token(int64(4+i), words[i%len(words)], 5e8)
		for layer := range 2 {
			s.put(resource.Routing{Header: s.head(resource.KindRouting), Exec: s.exec + 1, LayerID: layer,
				Experts: []int32{int32(i % 4), 7}})
		}
		s.graph("decode", 1)
	}
	s.put(resource.GPUSample{Header: s.head(resource.KindGPU), Name: "Fake \x1b[31mGPU", PowerW: ptr(71.5),
		Utilization: ptr(40.0), MemoryUsed: ptr(int64(3 << 30))})
	s.put(resource.RAPLSample{Header: s.head(resource.KindRAPL), Domain: "package-0", WindowNS: 1e8, EnergyJ: 1.5})
	s.put(resource.Loss{Header: s.head(resource.KindLoss), Kind: "sampling_state", Cause: "rate", Count: 7})
	return s
}

func systemLine(t testing.TB) string {
	t.Helper()
	line := resource.SystemLine{HostHeader: resource.HostHeader{Timestamp: 1_790_000_012, ActualS: 2},
		OffCPU: map[string]int64{"1": 3e8, "2": 1e8}, Faults: map[string]uint64{"1": 90, "2": 10},
		Pressure:  map[string]resource.HostStall{"cpu": {"some": {Avg10: 12.5}}, "memory": {"some": {}}},
		Processes: []resource.ProcessLine{{RSSBytes: ptr(uint64(1 << 30)), Major: ptr(uint64(4))}, {}},
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// following follows a directory as far as it is.
func following(t testing.TB, dir string) *Live {
	t.Helper()
	l, err := OpenLive(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if _, err := l.Update(context.Background()); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestScreens compares the screens of a run with golden files.
func TestScreens(t *testing.T) {
	events := liveRun()
	dir := filepath.Join(directory(t, map[string]string{
		"never-q8/run_x/" + rundir.EventsName: events.String(), "never-q8/run_x/metadata.json": metadata,
		"never-q8/run_x/" + rundir.SystemName: systemLine(t) + `{"torn`,
		"never-q8/run_y/metadata.json":        metadata,
	}), "never-q8")
	full, empty := following(t, filepath.Join(dir, "run_x")), following(t, filepath.Join(dir, "run_y"))
	now := time.Unix(0, 1_790_000_000_000_000_000+events.ns)
	for name, c := range map[string]struct {
		of   *Live
		view View
	}{
		"top.80x24": {full, View{80, 24, "component", "q quit"}}, "top.120x40": {full, View{120, 40, "op", "q quit"}},
		"top.whole": {full, View{100, 0, "layer", ""}}, "top.empty": {empty, View{80, 24, "component", "q quit"}},
	} {
		lines := c.of.Snapshot(now).Screen(c.view)
		if c.view.Height > 0 && len(lines) > c.view.Height {
			t.Errorf("%s: %d lines", name, len(lines))
		}
		got, path := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := mustRead(t, path); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	s := full.Snapshot(now)
	for _, width := range []int{1, 2, 10, 60} {
		for height := range 30 {
			lines := s.Screen(View{width, height + 1, "layer", "q"})
			if text := strings.Join(lines, ""); len(lines) > height+1 || strings.ContainsAny(text, "\x1b\n\t") {
				t.Fatalf("%dx%d: %q", width, height+1, lines)
			}
		}
	}
	if got := s.Summary(); !strings.HasPrefix(got, "0:00:12 cut off, 4 prompt tokens, 24 generated, 2.11 tokens/s") ||
		!strings.HasSuffix(got, "KV base 28 of 56 cells, mlp 40.0 %, LOST 7 sampling_state events (rate)") {
		t.Error(got)
	}
}

// TestSpeed: the recent figures are those of the last ten seconds, and fade when nothing comes.
func TestSpeed(t *testing.T) {
	events := liveRun()
	l := following(t, directory(t, map[string]string{rundir.EventsName: events.String(), "metadata.json": metadata}))
	r, last := l.Sum.recent, l.Sum.recent.last // 12 s after the first event
	for _, c := range []struct {
		after  time.Duration
		tokens float64 // in the second of the end and the nine before
	}{
		{0, 19}, {5 * time.Second, 9}, {9 * time.Second, 1}, {10 * time.Second, 0}, {time.Hour, 0},
	} {
		end := last + int64(c.after)
		span := float64(end-(end/1e9-9)*1e9) / 1e9
		if got := r.speed(end, l.Sum.first); got.Recent != c.tokens/span {
			t.Errorf("%v later: %v tokens/s, want %v in %v s", c.after, got.Recent, c.tokens, span)
		}
	}
	if got := r.speed(last, l.Sum.first).History; !slices.Equal(got, []int64{1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}) {
		t.Errorf("by the second: %v", got)
	}
	long := newRecent()
	for second := range int64(70) {
		e := &resource.Graph{Phase: phaseDecode, Tokens: int(second)}
		e.UnixNS = second * 1e9
		long.graph(e)
	}
	if got := long.speed(long.last, 0).History; len(got) != 60 || got[0] != 9 || got[59] != 68 {
		t.Errorf("of the last 60 whole seconds: %v", got)
	}
	shares := r.shares(last)
	for key, want := range map[rowKey]float64{{byComponent, "attention"}: 0.3, {byComponent, "mlp"}: 0.4,
		{byLayer, "none"}: 0.2, {byLayer, "1"}: 0.35, {byOp, "SOFT_MAX"}: 0.1} {
		if got := shares[key]; got == nil || *got < want-1e-9 || *got > want+1e-9 {
			t.Errorf("%v: %v, want %v", key, got, want)
		}
	}
	if got := r.shares(last + 3600e9); len(got) > 0 {
		t.Errorf("an hour later: %v", got)
	}
}

// TestLiveLacksNoCells: a run with --tap-kv is not said to lack it where nobody follows the cells any more.
func TestLiveLacksNoCells(t *testing.T) {
	for recorder, lacks := range map[string]bool{"requests": true, "kv": false} {
		dir := t.TempDir()
		text := `{"config":{"recorders":["` + recorder + `"]}}`
		if err := os.WriteFile(filepath.Join(dir, rundir.MetadataName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := following(t, dir)
		s := l.Snapshot(time.Now())
		if got := slices.Contains(s.Missing, Missing{"KV cells", "--tap-kv"}); got != lacks {
			t.Errorf("with %s: %+v", recorder, s.Missing)
		}
	}
}

// TestLiveIsSealed follows a run from before its first event to its seal, and asks its collector.
func TestLiveIsSealed(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteJSON(rundir.MetadataName, json.RawMessage(metadata)); err != nil {
		t.Fatal(err)
	}
	l := following(t, d.Path())
	l.Ask = func() (json.RawMessage, error) {
		return json.RawMessage(`{"pid":7,"level":"VERBOSE","packets":3,"losses":{"pool_full":2},"kv":{"caches":[` +
			`{"ctx":1,"cache":"base","used":5,"cells":64,"sequences":[{"seq_id":2,"cells":5,"pos_max":4}]}]}}`), nil
	}
	if s := l.Snapshot(time.Now()); s.State != StateRunning || s.Lines != 0 || s.Speed != nil || len(s.Missing) < 5 {
		t.Errorf("before the first event: %+v", s)
	}
	file, err := d.Create(rundir.EventsName)
	if err != nil {
		t.Fatal(err)
	}
	text := liveRun().Bytes()
	half := len(text) / 2
	for _, part := range [][]byte{text[:half], text[half:]} {
		if _, err := file.Write(part); err != nil {
			t.Fatal(err)
		}
		var s *Snapshot
		testenv.Until(t, "the collector's answer is shown", func() bool {
			if ended, err := l.Update(t.Context()); ended || err != nil {
				t.Fatalf("%v, %v", ended, err)
			}
			s = l.Snapshot(time.Now())
			return s.Captured != nil
		})
		if s.State != StateRunning || s.PID != 7 || s.Captured.Packets != 3 || s.Caches[0].Cells != 64 ||
			*s.Caches[0].Sequences[0] != (SequenceUse{2, 5, 5}) {
			t.Errorf("%+v", s)
		}
	}
	late := l.Snapshot(time.Unix(1_790_000_015, 0)).Screen(View{100, 0, "op", ""}) // 3 s after the last token
	if !slices.Contains(late, "the newest event is 3.00 s old, 0 B of the log are not read yet") {
		t.Errorf("%q", late)
	}
	if err := errors.Join(file.Close(), d.Seal()); err != nil {
		t.Fatal(err)
	}
	ended, err := l.Update(t.Context())
	s := l.Snapshot(time.Now())
	if !ended || err != nil || s.State != StateSealed || s.Unread != 0 || s.Captured != nil || s.Caches[0].Used != 28 ||
		int(s.Lines) != bytes.Count(text, []byte("\n")) {
		t.Errorf("%v, %v: %+v", ended, err, s)
	}
}

// TestLongLog: while a log is so long that the time of an update goes by, the collector's first answer is shown.
func TestLongLog(t *testing.T) {
	defer func(before time.Duration) { answerTime = before }(answerTime)
	answerTime = testenv.Patience() // the machine may be busy
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		l := following(t, d.Path())
		l.Ask = func() (json.RawMessage, error) {
			time.Sleep(time.Millisecond)
			return json.RawMessage(`{"kv":{"caches":[{"cache":"base","used":5,"cells":64}]}}`), nil
		}
		over, stop := context.WithCancel(t.Context())
		stop()
		if _, err := l.Update(over); err != nil {
			t.Fatal(err)
		}
		if s := l.Snapshot(time.Now()); len(s.Caches) != 1 || s.Caches[0].Used != 5 {
			t.Fatalf("caches: %+v", s.Caches)
		}
	}
}

// TestLiveIsBounded: neither the names nor the texts of a log, nor lines of the host, take memory without a bound.
func TestLiveIsBounded(t *testing.T) {
	r := newRecent()
	for i := range 3 * maxKeys {
		r.node(Cell{Component: fmt.Sprint(i), Layer: i, Op: fmt.Sprint(i)}, 1)
		r.routed([]int32{int32(i)})
		r.token(&resource.OutputToken{TokenText: ptr(strings.Repeat("世", 100)),
			SeqID: ptr(int32(i % (2 * maxTexts)))})
	}
	pending := len(r.pending)
	r.graph(&resource.Graph{Header: resource.Header{UnixNS: 5e9}, DurationNS: ptr(int64(1)), TimedNS: ptr(int64(1))})
	if pending != maxKeys || len(r.experts) != maxExperts || len(r.texts) != maxTexts || len(r.pending) != 0 ||
		len(r.at(5e9).ns) != maxKeys {
		t.Errorf("%d names, %d experts, %d texts, %d names are left", pending, len(r.experts), len(r.texts),
			len(r.pending))
	}
	for _, text := range r.newestTexts() {
		if len(text.Text) > maxText || strings.Trim(text.Text, "世") != "" {
			t.Errorf("%d bytes: %q", len(text.Text), text.Text)
		}
	}
	for name, want := range map[string]bool{systemLine(t): true, strings.Repeat("x", 3*maxLine): false,
		strings.Repeat("x", 100) + "\n" + systemLine(t) + strings.Repeat("x", maxLine/2): true, "": false,
		"\n": false} {
		h := hostNow(directory(t, map[string]string{rundir.SystemName: name}))
		if (h != nil) != want || want && (h.OffCPUNS != 4e8 || h.Faults != 100 || *h.Major != 4) {
			t.Errorf("%.20q: %+v", name, h)
		}
	}
}

// TestLiveOfNoRun: a folder that holds no run is none.
func TestLiveOfNoRun(t *testing.T) {
	for _, dir := range []string{t.TempDir(), directory(t, map[string]string{"holiday.jpg": "x"}), "/nowhere"} {
		if _, err := OpenLive(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestSkim: what is skipped within graphs changes neither tokens nor shares.
func TestSkim(t *testing.T) {
	text := liveRun().String()
	whole, part := newSum(), newSum()
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		part.skim.behind = i%40 > 10
		for _, s := range []*Sum{whole, part} {
			s.Add(Line{Number: int64(i + 1), Text: []byte(line)})
		}
	}
	a, b := whole.Report(), part.Report()
	if part.skim.graphs == 0 || part.skim.graphs == a.TimedGraphs || b.TimedGraphs != a.TimedGraphs-part.skim.graphs ||
		b.Graphs != a.Graphs || b.GraphNS != a.GraphNS || b.Phases[1].Tokens != 24 || len(b.Events) != len(a.Events) {
		t.Errorf("%d of %d graphs were skipped: %+v", part.skim.graphs, a.TimedGraphs, b)
	}
	for i, c := range b.Components {
		if whole := a.Components[i]; c.Component != whole.Component || *c.NS >= *whole.NS ||
			*c.Share < *whole.Share-1e-9 || *c.Share > *whole.Share+1e-9 {
			t.Errorf("%s: %v in %d ns, whole %s: %v in %d ns", c.Component, *c.Share, *c.NS, whole.Component,
				*whole.Share, *whole.NS)
		}
	}
}
