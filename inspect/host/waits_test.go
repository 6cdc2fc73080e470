package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

func pointer[T any](v T) *T { return &v }

// waitLines are those of a small run: loading, a prompt of five tokens, four tokens that are generated, with what
// came between.
func waitLines(total bool) []resource.WaitLine {
	var all []resource.WaitLine
	var sum resource.WaitLine
	places := map[string]*resource.WaitPlace{}
	add := func(l resource.WaitLine) {
		sum.Add(&l.WaitFigures)
		for _, p := range l.Places {
			if places[p.Tensor] == nil {
				places[p.Tensor] = &resource.WaitPlace{File: p.File, Tensor: p.Tensor, Layer: p.Layer}
			}
			places[p.Tensor].Add(&p.WaitFigures)
		}
		all = append(all, l)
	}
	figures := func(ms int64, faults uint64) resource.WaitFigures {
		return resource.WaitFigures{WaitNS: ms * 1e6, Faults: faults, Minor: faults - faults/4, Major: faults / 4,
			FaultNS: ms * 1e6, BlockedNS: ms * 9e5, Requests: faults / 19,
			BlockBytes: faults << 12, ReadBytes: faults << 12, BlockNS: ms * 1e6}
	}
	const model = "/models/tiny.gguf"
	load := figures(3, 40)
	load.Calls, load.CallNS, load.WaitNS = 12, 200e6, load.WaitNS+200e6
	add(resource.WaitLine{Kind: resource.WaitPhase, Phase: "load", EndNS: 1e9, DurationNS: 1e9, WaitFigures: load,
		StalledNS: 203e6, MaxNS: 41e6,
		Memory: map[string]*resource.WaitFigures{"heap": pointer(figures(3, 40))},
		Places: []resource.WaitPlace{{File: model, Tensor: resource.PartHeader,
			WaitFigures: resource.WaitFigures{WaitNS: 200e6, Calls: 12, CallNS: 200e6}}}})
	for i := range int64(5) {
		l := resource.WaitLine{Kind: resource.WaitGraph, Ctx: pointer(uint32(1)), Exec: pointer(uint64(i + 7)),
			Phase: "decode", TokenFirst: pointer(i + 4), TokenCount: 1,
			DurationNS: 120e6, StalledNS: (98 - 20*i) * 1e6, P50NS: 52e3, P95NS: 2e6, P99NS: 9e6, MaxNS: 12e6,
			WaitFigures: figures(2*(98-20*i), uint64(1150-100*i))}
		if i == 0 {
			l.Phase, l.TokenFirst, l.TokenCount = "prefill", pointer(int64(0)), 4
			l.FirstFaults = &resource.WaitOrder{Tensors: 12, Known: 14, InOrder: 11}
		}
		half := figures(98-20*i, uint64(1150-100*i)/2)
		rest := l.WaitFigures
		rest.WaitNS, rest.Faults, rest.Minor, rest.Major = rest.WaitNS-half.WaitNS, rest.Faults-half.Faults,
			rest.Minor-half.Minor, rest.Major-half.Major
		rest.FaultNS, rest.BlockedNS, rest.Requests = rest.FaultNS-half.FaultNS, rest.BlockedNS-half.BlockedNS,
			rest.Requests-half.Requests
		rest.BlockBytes, rest.ReadBytes, rest.BlockNS = rest.BlockBytes-half.BlockBytes, rest.ReadBytes-half.ReadBytes,
			rest.BlockNS-half.BlockNS
		l.Places = []resource.WaitPlace{{File: model, Tensor: "blk.7.ffn_up.weight", Layer: pointer(7),
			WaitFigures: half}, {File: model, Tensor: "blk.0.attn_q.weight", Layer: pointer(0), WaitFigures: rest}}
		add(l)
	}
	add(resource.WaitLine{Kind: resource.WaitBetween, Exec: pointer(uint64(8)), DurationNS: 4e6,
		WaitFigures: figures(1, 1), StalledNS: 1e6, MaxNS: 1e6,
		Places: []resource.WaitPlace{{File: "/lib/libllama.so", WaitFigures: figures(1, 1)}}})
	if total {
		sum.Kind, sum.DurationNS, sum.Origin = resource.WaitTotal, 2e9, "bpf"
		sum.Lost = map[string]uint64{"faults_open": 2, "ring_full": 3}
		sum.Missing = map[string]string{"on_around": "no such hook"}
		sum.Memory = map[string]*resource.WaitFigures{"heap": pointer(figures(3, 40))}
		for _, p := range places {
			sum.Places = append(sum.Places, *p)
		}
		all = append(all, sum)
	}
	return all
}

func waitsFile(t testing.TB, lines []resource.WaitLine) string {
	t.Helper()
	var b bytes.Buffer
	for i := range lines {
		if err := json.NewEncoder(&b).Encode(&lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, rundir.WaitsName), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWaitsGolden(t *testing.T) {
	for name, total := range map[string]bool{"waits": true, "waits_running": false} {
		w, err := ReadWaits(waitsFile(t, waitLines(total)))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		w.Run, w.Lines.Path = "RUN", "RUN/"+rundir.WaitsName
		if err := w.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		made, err := json.MarshalIndent(w, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		for ending, got := range map[string][]byte{".txt": text.Bytes(), ".json": append(made, '\n')} {
			path := filepath.Join("testdata", name+ending)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v\ngot:\n%s", path, err, got)
			}
		}
	}
}

// TestWaitsSums: phases, places, memory and the total are the same figures in another order.
func TestWaitsSums(t *testing.T) {
	for _, total := range []bool{true, false} {
		w, err := ReadWaits(waitsFile(t, waitLines(total)))
		if err != nil {
			t.Fatal(err)
		}
		var phases, places resource.WaitFigures
		for i := range w.Phases {
			phases.Add(&w.Phases[i].WaitFigures)
		}
		for i := range w.Tensors {
			places.Add(&w.Tensors[i].WaitFigures)
		}
		for _, f := range w.Total.Memory {
			places.Add(f)
		}
		if phases != w.Total.WaitFigures || places != w.Total.WaitFigures || w.Sealed != total {
			t.Errorf("phases %+v\nplaces %+v\ntotal  %+v", phases, places, w.Total.WaitFigures)
		}
	}
}

func TestSentence(t *testing.T) {
	w, err := ReadWaits(waitsFile(t, waitLines(true)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{
		0: "tokens 0 to 3 waited 98.0 ms of 120 ms on 1,150 faults and 60 block requests, most on " +
			"blk.7.ffn_up.weight (98.0 ms), p99 9.00 ms",
		4: "token 8 waited 18.0 ms of 120 ms on 750 faults and 39 block requests, most on blk.7.ffn_up.weight (18.0 " +
			"ms), p99 9.00 ms",
	} {
		if got := w.Rows[i].sentence(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if got := (&WaitRow{Kind: resource.WaitGraph,
		Exec: pointer(uint64(5))}).sentence(); got != "execution 5 waited for nothing" {
		t.Error(got)
	}
}

func TestWaitsRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.jsonl")
	if err := os.WriteFile(other, []byte(`{"kind":"mystery"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "--tap-host waits", other: "no line of waits",
		filepath.Join(dir, "none"): "--tap-host waits"} {
		if _, err := ReadWaits(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestManyWaits: a run of more executions than are listed keeps its sums.
func TestManyWaits(t *testing.T) {
	w := &Waits{phases: map[string]*WaitPhase{}, places: map[placeKey]*WaitTensor{}}
	for i := range maxWaitRows + 5 {
		line := fmt.Sprintf(
			`{"kind":"graph","phase":"decode","exec":%d,"wait_ns":2,"faults":1,`+
				`"places":[{"file":"f%d","wait_ns":2,"faults":1}]}`, i, i)
		if err := w.addLine([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	w.finish()
	if len(w.Rows) != maxWaitRows || w.Beyond != 5 || w.Total.Faults != maxWaitRows+5 ||
		len(w.Tensors) > maxWaitPlaces {
		t.Errorf("%d rows, %d beyond, %d faults, %d places", len(w.Rows), w.Beyond, w.Total.Faults, len(w.Tensors))
	}
}

func FuzzWaits(f *testing.F) {
	for _, l := range waitLines(true) {
		text, err := json.Marshal(&l)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := &Waits{phases: map[string]*WaitPhase{}, places: map[placeKey]*WaitTensor{}}
		if err := readLines(bytes.NewReader(text), &w.Lines, w.addLine); err != nil {
			t.Fatal(err)
		}
		w.finish()
		var out bytes.Buffer
		if err := w.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(w); err != nil {
			t.Fatal(err)
		}
	})
}
