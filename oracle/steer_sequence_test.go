//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// shared begin alike: a cache that mixed steering states would serve the first two for each other.
var shared = []string{
	"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println",
	"package main\n\nimport \"fmt\"\n\nfunc main() { for i := range",
	"type Reader interface {\n\tRead",
}

// rounding is how far log-probabilities lie apart at most where the same is computed with other tokens beside it.
const rounding = 1e-3

// distance is how far the log-probabilities of two answers lie apart at most; that of other tokens is infinite.
func (a *scored) distance(t *testing.T, b *scored) (most float64) {
	t.Helper()
	x, y := a.logprobs(t), b.logprobs(t)
	if a.Content != b.Content || len(x) != len(y) {
		return math.Inf(1)
	}
	for i := range x {
		most = max(most, math.Abs(x[i]-y[i]))
	}
	return most
}

// logprobs are what an answer's tokens, and those it could have had in their places, scored.
func (a *scored) logprobs(t *testing.T) (all []float64) {
	t.Helper()
	var places []struct {
		Logprob float64 `json:"logprob"`
		Top     []struct {
			Logprob float64 `json:"logprob"`
		} `json:"top_logprobs"`
	}
	if err := json.Unmarshal(a.Scores, &places); err != nil {
		t.Errorf("scores %.200s: %v", a.Scores, err)
	}
	for _, place := range places {
		all = append(all, place.Logprob)
		for _, top := range place.Top {
			all = append(all, top.Logprob)
		}
	}
	return all
}

// slots is a llama-server with several slots, and what servers of their own answer that have one vector for all.
type slots struct {
	*server
	references map[string][]scored // by vector, in the order of shared
}

const slotTokens = 6

func (s *slots) score(t *testing.T, slot int32, prompt int) (a scored) {
	t.Helper()
	q := question{prompt: shared[prompt], slot: slot, n: slotTokens, options: map[string]any{"n_probs": 5}}
	s.post(t, "/completion", q.body(), &a)
	return a
}

// check compares an answer with that of a server whose every token has the vector. Prompts that are computed together,
// or in parts, are rounded otherwise.
func (s *slots) check(t *testing.T, what string, got scored, vector string, prompt int) {
	t.Helper()
	want := s.references[vector][prompt]
	if far := got.distance(t, &want); far > rounding {
		t.Errorf("%s: log-probabilities differ by up to %g; answer %q, want %q", what, far, got.Content, want.Content)
	}
}

// want asks a slot, while nothing else is computed, and also reports whether the prompt was computed in full.
func (s *slots) want(t *testing.T, what string, slot int32, prompt int, vector string, cached bool) {
	t.Helper()
	got := s.score(t, slot, prompt)
	if (got.Timings.Cached > 1) != cached {
		t.Errorf("%s: %d tokens were cached, cached should be %v", what, got.Timings.Cached, cached)
	}
	s.check(t, what, got, vector, prompt)
	if want := s.references[vector][prompt]; !cached && !bytes.Equal(got.Scores, want.Scores) {
		t.Errorf("%s: not equal bit by bit:\n%.300s\n%.300s", what, got.Scores, want.Scores)
	}
}

// slot saves or restores a slot.
func (s *slots) slot(t *testing.T, slot int, action string) (status int) {
	t.Helper()
	response, err := http.Post(s.url+"/slots/"+strconv.Itoa(slot)+"?action="+action, "application/json",
		strings.NewReader(`{"filename":"slot.bin"}`))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func slotsOf(t *testing.T, vectors []string, tap []string, args ...string) *slots {
	t.Helper()
	s := &slots{references: map[string][]scored{}}
	for _, vector := range vectors {
		line := append([]string{testenv.NeedTool(t, "llama-server").Path, "--no-cache-prompt", "--cache-ram", "0"},
			args...)
		if vector != "" {
			line = append(line, "--control-vector-scaled", vector)
		}
		fresh := &slots{server: serveBy(t, "", line...)}
		for prompt := range shared {
			s.references[vector] = append(s.references[vector], fresh.score(t, 0, prompt))
		}
		fresh.stop()
	}
	for i, vector := range vectors[1:] {
		for prompt := range shared {
			if s.references[vectors[i]][prompt].distance(t, &s.references[vector][prompt]) < 100*rounding {
				t.Fatalf("%s hardly changes the answer to prompt %d", vector, prompt)
			}
		}
	}
	s.server = serve(t, append([]string{"--tap-steer", "armed"}, tap...), args...)
	takesCommands(t, s.out)
	return s
}

// together asks every slot at once, several times, each for the answer of its vector.
func (s *slots) together(t *testing.T, what string, vectors ...string) {
	t.Helper()
	var all sync.WaitGroup
	for slot, vector := range vectors {
		all.Go(func() {
			for i := range 4 {
				prompt := (slot + i) % len(shared)
				s.check(t, what+", slot "+strconv.Itoa(slot), s.score(t, int32(slot), prompt), vector, prompt)
			}
		})
	}
	all.Wait()
}

// several asks a slot for several answers of one request, which llama-server computes in other slots as well.
func (s *slots) several(t *testing.T, what string, slot int32, vector string) {
	t.Helper()
	var all []scored
	q := question{prompt: shared[0], slot: slot, n: slotTokens, options: map[string]any{"n_probs": 5, "n_cmpl": 2}}
	s.post(t, "/completion", q.body(), &all)
	if len(all) != 2 {
		t.Fatalf("%s: %d answers", what, len(all))
	}
	for _, a := range all {
		s.check(t, what, a, vector, 0)
	}
}

// TestSteerSequences steers single slots of llama-server. Each answer is that of a server of its own whose every token
// has the slot's vector, whatever the other slots and the caches have.
func TestSteerSequences(t *testing.T) {
	file := steerFile(t, 6, 256)
	moved, other := file+":0.5", file+":-0.3"
	s := slotsOf(t, []string{"", moved, other}, []string{"--tap-tensor", "l_out-5"}, "-np", "2", "-t", "1",
		"-c", "32768", "--override-kv", "llama.context_length=int:32768", // that a generation outlasts a command
		"--no-webui", "--slot-save-path", t.TempDir())
	steer := func(words ...string) { t.Helper(); ctl(t, s.out, append([]string{"steer"}, words...)...) }
	s.want(t, "armed", 0, 0, "", false)
	s.want(t, "armed", 1, 0, "", false)
	steer(moved, "sequence", "0")
	s.want(t, "steered", 0, 0, moved, false)
	s.want(t, "beside it", 1, 0, "", true)
	s.want(t, "steered, shared prefix", 0, 1, moved, true)
	s.want(t, "beside it, shared prefix", 1, 1, "", true)
	s.want(t, "the steered prompt is saved in memory", 0, 2, moved, false)
	s.want(t, "which is not for the slot beside it", 1, 0, "", true)
	s.want(t, "but for the steered one", 0, 1, moved, true)
	s.several(t, "several answers of a steered slot", 0, moved)
	s.want(t, "the slot that had one of them", 1, 0, "", false)
	s.several(t, "several answers of another slot", 1, "")
	s.want(t, "the steered slot that had one of them", 0, 0, moved, false)
	if status := s.slot(t, 0, "save"); status != http.StatusOK {
		t.Errorf("saving a slot: %d", status)
	}
	if status := s.slot(t, 1, "restore"); status < 400 {
		t.Errorf("a slot of another vector was restored: %d", status)
	}
	s.want(t, "after it was refused", 1, 0, "", false)
	if status := s.slot(t, 0, "restore"); status != http.StatusOK {
		t.Errorf("a slot of the same vector was not restored: %d", status)
	}
	s.want(t, "steered, restored", 0, 0, moved, true)

	steer(other)
	s.want(t, "in place of the vector of all", 0, 0, moved, true)
	s.want(t, "the vector of all", 1, 0, other, false)
	s.together(t, "two vectors", moved, other)
	steer(moved, "sequence", "1")
	steer(other, "sequence", "0")
	s.together(t, "two vectors, exchanged", other, moved)
	steer("off")
	steer("off", "sequence", "0")
	s.want(t, "off", 0, 1, "", false)
	s.together(t, "off", "", moved)
	steer("off", "sequence", "1")
	s.want(t, "off", 1, 1, "", false)
	s.together(t, "all are off", "", "")
	endless := question{prompt: shared[2], slot: 1, n: 1_000_000, options: map[string]any{"stream": true}}
	s.hearSome(t, endless, 100, func() { // the graph that is computed again and again adds one vector to all rows
		steer(moved, "sequence", "1")
		testenv.Until(t, "the vector acts", func() bool {
			own := ctl(t, s.out, "status").Status.Sequences
			return len(own) == 1 && own[0].FirstExec != nil
		})
	})
	s.want(t, "after a generation of two states", 1, 2, moved, false)
	s.together(t, "after it", "", moved)
	ctl(t, s.out, "stop")
	s.want(t, "not recorded any more", 0, 1, "", true)
	s.together(t, "not recorded any more", "", moved)
	c := s.end(t)
	checkSteered(t, c.meta.Steering)
}

// TestSteerSequenceCaptured: the captured residual stream of a steered sequence is that of another one plus the vector,
// and what a kill would leave of the run says so.
func TestSteerSequenceCaptured(t *testing.T) {
	file := steerFile(t, 6, 256)
	s := &slots{server: serve(t, []string{"--tap-steer", "armed", "--tap-tensor", "l_out-0,l_out-1", "--tap-dtype",
		"f32"}, "-np", "2", "-c", "1024", "-t", "1", "--no-webui")}
	takesCommands(t, s.out)
	s.score(t, 1, 0)
	ctl(t, s.out, "steer", file+":0.5:1", "sequence", "0")
	s.score(t, 0, 0)
	var beginning rundir.Metadata
	testenv.Until(t, "the run's beginning names the sequence", func() bool {
		beginning = metadata(t, dirOf(t, s.out))
		return len(beginning.Steering) == 2
	})
	if state := beginning.Steering[1]; state.Sequence == nil || *state.Sequence != 0 || state.FirstExec == nil {
		t.Errorf("in the beginning of the run: %s", state)
	}
	c := s.end(t)
	streams := map[string][][]float32{} // of both prompts
	for _, e := range c.execs() {
		if len(e.Rows) == 1 {
			continue // it generates
		}
		for k, x := range c.tensors(t) {
			if k.exec == e.Exec {
				streams[k.node] = append(streams[k.node], x.values)
			}
		}
	}
	before, after := streams["l_out-0"], streams["l_out-1"]
	if len(before) != 2 || len(after) != 2 || !slices.Equal(before[0], before[1]) {
		t.Fatalf("%d and %d tensors, those before the vector are alike: %v", len(before), len(after), len(before) == 2)
	}
	for i, plain := range after[0] {
		want := plain + 0.5*float32(2*math.Sin(float64(i%256+1)))
		if after[1][i] != want {
			t.Fatalf("value %d is %v, want %v + the vector = %v", i, after[1][i], plain, want)
		}
	}
}

// TestSteerSequencesElsewhere steers slots where rows, graphs and vectors are elsewhere.
func TestSteerSequencesElsewhere(t *testing.T) {
	testenv.Slow(t)
	models := map[string]string{"small micro-batches": "", "device": "", "two devices": "",
		"one stream": synthetic(t, "llama", gguf.F32, nil)}
	if testenv.Nightly() {
		for _, arch := range synth.Archs() {
			models[arch] = synthetic(t, arch, gguf.F32, nil)
		}
	}
	more := map[string][]string{"small micro-batches": {"-ub", "8", "-b", "32"},
		"one stream": {"--kv-unified", "-ctk", "f32", "-ctv", "f32", "-fa", "off"}}
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-np", "3", "-c", "1536", "-t", "1", "--no-webui"}, more[name]...)
			moved := steerFile(t, 6, 256) + ":0.5"
			if model != "" {
				layers, width := shapeOf(t, model)
				moved = steerFile(t, layers, width) + ":0.5"
				args = append(args, "-m", model)
			}
			if layers := map[string]string{"device": "99", "two devices": "3"}[name]; layers != "" {
				args = append(args, "--rpc", testenv.NeedRPC(t), "-ngl", layers)
				name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
				t.Setenv(name, path)
			}
			s := slotsOf(t, []string{"", moved}, []string{"--tap-tensor", "l_out-1"}, args...)
			s.together(t, "armed", "", "", "")
			ctl(t, s.out, "steer", moved, "sequence", "1")
			s.together(t, "steered", "", moved, "")
			ctl(t, s.out, "steer", moved, "sequence", "2")
			s.together(t, "two are steered", "", moved, moved)
			ctl(t, s.out, "steer", "off", "sequence", "1")
			s.together(t, "one is off", "", "", moved)
			s.end(t)
		})
	}
}

// checkSteered compares what the metadata lists with what TestSteerSequences has done.
func checkSteered(t *testing.T, states []rundir.Steering) {
	t.Helper()
	const all = -1
	want := []struct {
		sequence int
		scale    float64 // 0: none
	}{{all, 0}, {0, 0.5}, {all, -0.3}, {1, 0.5}, {0, -0.3}, {all, 0}, {0, 0}, {1, 0}, {1, 0.5}}
	if len(states) != len(want) {
		t.Fatalf("%d states: %v", len(states), states)
	}
	for i, state := range states {
		sequence, scale := all, 0.0
		if state.Sequence != nil {
			sequence = *state.Sequence
		}
		if state.Vector != nil {
			scale = state.Vector.Scale
		}
		if sequence != want[i].sequence || scale != want[i].scale || state.FirstExec == nil {
			t.Errorf("state %d is %s", i, state)
		}
	}
}
