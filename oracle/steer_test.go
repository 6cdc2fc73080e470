//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// steerFile writes a control vector for a model, which changes what it writes.
func steerFile(t *testing.T, layers, width int) string {
	t.Helper()
	v := gguf.ControlVector{Layers: layers, Directions: map[int][]float32{}}
	for layer := 1; layer < layers; layer++ {
		row := make([]float32, width)
		for i := range row {
			row[i] = float32(2 * math.Sin(float64(i*layer+layer)))
		}
		v.Directions[layer] = row
	}
	path := filepath.Join(t.TempDir(), "wave.gguf")
	var file bytes.Buffer
	if err := v.Write(&file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A scored answer of llama-server, with the probabilities of what it could have written.
type scored struct {
	Content string          `json:"content"`
	Scores  json.RawMessage `json:"completion_probabilities"`
	Timings struct {
		Cached int `json:"cache_n"`
	} `json:"timings"`
}

// score asks for a few tokens and their probabilities.
func (s *server) score(t *testing.T, prompt string) (a scored) {
	t.Helper()
	q := question{prompt: prompt, n: 4, options: map[string]any{"n_probs": 5}}
	s.post(t, "/completion", q.body(), &a)
	return a
}

// steerPrompts differ from their first token on.
var steerPrompts = []string{"func main() { fmt.Println", "package os\n\nimport strings",
	"type Reader interface {\n\tRead"}

// TestSteer exchanges vectors under llama-server. Whatever its caches hold of other vectors, each answer is that of a
// server of its own that had the vector from the start; within one state the caches are reused.
func TestSteer(t *testing.T) {
	file := steerFile(t, 6, 256)
	args := []string{"-np", "1", "-c", "512", "-t", "1", "--no-webui", "--context-shift"}
	fresh := func(more ...string) (all []scored) {
		line := slices.Concat([]string{testenv.NeedTool(t, "llama-server").Path}, args, more)
		s := serveBy(t, "", line...)
		defer s.stop()
		for _, prompt := range steerPrompts {
			all = append(all, s.score(t, prompt))
		}
		return all
	}
	plain := fresh("--no-cache-prompt", "--cache-ram", "0")
	moved := fresh("--no-cache-prompt", "--cache-ram", "0", "--control-vector-scaled", file+":0.5")
	slots := t.TempDir()
	s := serve(t, []string{"--tap-steer", "armed", "--tap-tensor", "l_out-5"},
		append(args, "--slot-save-path", slots)...)
	takesCommands(t, s.out)
	want := func(what string, prompt int, reference []scored, cached bool) {
		t.Helper()
		got := s.score(t, steerPrompts[prompt])
		if (got.Timings.Cached > 1) != cached { // the first token may be that of the prompt before
			t.Errorf("%s: %d tokens were cached, cached should be %v", what, got.Timings.Cached, cached)
		}
		if want := reference[prompt]; !cached && !bytes.Equal(got.Scores, want.Scores) || got.Content != want.Content {
			t.Errorf("%s: answer %q, want %q\n%.300s\n%.300s", what, got.Content, want.Content, got.Scores, want.Scores)
		}
	}
	slot := func(action string) (status int) {
		response, err := http.Post(s.url+"/slots/0?action="+action, "application/json",
			strings.NewReader(`{"filename":"slot.bin"}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if bytes.Equal(plain[0].Scores, moved[0].Scores) {
		t.Fatal("the vector changes nothing")
	}
	steer := func(vector string) { t.Helper(); ctl(t, s.out, "steer", vector) }
	want("armed", 0, plain, false)
	want("armed, again", 0, plain, true)
	steer(file + ":0.5")
	want("steered", 0, moved, false)
	want("steered, again", 0, moved, true)
	want("another prompt", 1, moved, false) // the first one is saved in memory
	want("from memory", 0, moved, true)
	if status := slot("save"); status != http.StatusOK {
		t.Errorf("saving a slot: %d", status)
	}
	steer("off")
	want("off, what memory has is of the vector", 1, plain, false)
	if status := slot("restore"); status < 400 {
		t.Errorf("a slot of other vectors was restored: %d", status)
	}
	want("off, the prompt that was saved", 0, plain, false)
	steer(file + ":0.5")
	if status := slot("restore"); status != http.StatusOK {
		t.Errorf("a slot of the same vector was not restored: %d", status)
	}
	want("steered, restored", 0, moved, true)
	endless := question{prompt: steerPrompts[2], n: 1_000_000, options: map[string]any{"stream": true}}
	s.hearSome(t, endless, 100, func() {
		steer("off")
		testenv.Until(t, "the vector is gone", func() bool {
			return ctl(t, s.out, "status").Status.Steering.FirstExec != nil
		})
	})
	want("after a generation of two states", 2, plain, false)
	want("again", 2, plain, true)
	if o := llamatap(t, "ctl", s.out, "steer", testenv.Model(t)); o.status == 0 ||
		!strings.Contains(o.stderr, "not a control vector") {
		t.Errorf("a model was taken for a vector: %s", o.stderr)
	}
	c := s.end(t)
	states := c.meta.Steering
	if len(states) != 5 || len(c.meta.Changes) != 4 {
		t.Fatalf("states %v, changes %v", states, c.meta.Changes)
	}
	mixed := 0
	for _, tokens := range c.requests() {
		for _, state := range states[1:] {
			if state.FirstToken == nil || *state.FirstExec == 0 || state.ExchangeNS == 0 ||
				state.Vector != nil && (state.Vector.Scale != 0.5 || state.Vector.Layers != "1-5" ||
					state.Vector.File != file) {
				t.Fatalf("state %+v of %+v", state, state.Vector)
			}
			if tokens[0].Index < *state.FirstToken && *state.FirstToken <= tokens[len(tokens)-1].Index {
				mixed++
			}
		}
	}
	if mixed != 1 {
		t.Errorf("%d requests were computed in two states, 1 was under way at an exchange", mixed)
	}
	t.Logf("exchanges took %v, %v, %v ns", states[1].ExchangeNS, states[2].ExchangeNS, states[3].ExchangeNS)
}

// TestSteerFromStart: a vector from the start is that of llama.cpp's own flag, and is added to it.
func TestSteerFromStart(t *testing.T) {
	file := steerFile(t, 6, 256)
	args := []string{"-m", testenv.Model(t), "-p", steerPrompts[0], "-n", "24", "--temp", "0", "-t", "1"}
	cli, own := append(args, "-st", "--simple-io"), []string{"--control-vector-scaled", file + ":0.25"}
	args = append(args, "-no-cnv")
	run := func(steer, program string, args ...string) outcome {
		return llamatap(t, append([]string{"exec", "--tap-steer", steer, "--", program}, args...)...)
	}
	moved, _ := stock(t, "llama-completion", append(args, "--control-vector-scaled", file+":0.5")...)
	if plain, _ := stock(t, "llama-completion", args...); moved == plain {
		t.Fatal("the vector changes nothing")
	}
	if o := run(file+":0.5", "llama-completion", args...).good(t); o.stdout != moved {
		t.Errorf("%q, want %q", o.stdout, moved)
	}
	if o := run(file+":0.25", "llama-completion", append(args, own...)...).good(t); o.stdout != moved {
		t.Errorf("with the program's own: %q, want %q", o.stdout, moved)
	}
	chat, _ := stock(t, "llama-cli", append(cli, "--control-vector-scaled", file+":0.5")...)
	if o := run(file+":0.5", "llama-cli", cli...).good(t); mask(o.stdout) != mask(chat) {
		t.Errorf("llama-cli: %q, want %q", o.stdout, chat)
	}
	for want, steer := range map[string]string{"leave the others out": file + ":1:7",
		"the model's residual stream has 256": steerFile(t, 6, 64)} {
		if o := run(steer, "llama-completion", args...); o.status == 0 || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: %s", want, o.stderr)
		}
	}
}

// TestSteerArchitectures exchanges vectors of every architecture, with a draft model and without.
func TestSteerArchitectures(t *testing.T) {
	testenv.Slow(t) // four servers for each
	for _, arch := range synth.Archs() {
		model := synthetic(t, arch, gguf.F32, nil)
		layers, width := shapeOf(t, model)
		t.Run(arch, func(t *testing.T) { steerArchitecture(t, model, steerFile(t, layers, width)) })
	}
	bert := synthetic(t, "bert", gguf.F32, nil)
	o := llamatap(t, "exec", "--tap-steer", steerFile(t, 2, 64), "--", "llama-embedding", "-m", bert, "-p", "a")
	if o.status == 0 || !strings.Contains(o.stderr, "this architecture adds no control vectors") {
		t.Errorf("bert: %s", o.stderr)
	}
	t.Run("draft", func(t *testing.T) {
		steerArchitecture(t, testenv.Model(t), steerFile(t, 6, 256), "--spec-type", "draft-simple", "-md",
			testenv.Model(t),
			"-td", "1")
	})
}

// shapeOf is the number of layers of a model, and the width of its residual stream.
func shapeOf(t *testing.T, model string) (layers, width int) {
	t.Helper()
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := file.Metadata.Text("general.architecture") // mixtral is a llama
	n, _ := file.Metadata.Int(name + ".block_count")
	wide, _ := file.Metadata.Int(name + ".embedding_length")
	return int(n), int(wide)
}

func steerArchitecture(t *testing.T, model, file string, more ...string) {
	args := append([]string{"-m", model, "-np", "1", "-c", "512", "-t", "1", "--no-webui"}, more...)
	fresh := func(more ...string) scored {
		s := serveBy(t, "", slices.Concat([]string{testenv.NeedTool(t, "llama-server").Path}, args, more)...)
		defer s.stop()
		return s.score(t, steerPrompts[0])
	}
	plain, moved := fresh(), fresh("--control-vector-scaled", file+":0.5")
	s := serve(t, []string{"--tap-steer", "armed"}, args...)
	takesCommands(t, s.out)
	for i, state := range []struct {
		vector string
		want   scored
	}{{"", plain}, {file + ":0.5", moved}, {"off", plain}} {
		if state.vector != "" {
			ctl(t, s.out, "steer", state.vector)
		}
		if got := s.score(t, steerPrompts[0]); got.Timings.Cached != 0 || !bytes.Equal(got.Scores, state.want.Scores) {
			t.Errorf("state %d: %d cached\n%.300s\n%.300s", i, got.Timings.Cached, got.Scores, state.want.Scores)
		}
	}
	if bytes.Equal(plain.Scores, moved.Scores) {
		t.Error("the vector changes nothing")
	}
}

// TestSteerKilled: a run that was killed says what it was steered by, once repaired.
func TestSteerKilled(t *testing.T) {
	out := t.TempDir()
	killWhen(t, out, []string{"run", "-p", "func main() {", "-n", "400", "--ignore-eos", "--temp", "0", "-t", "1",
		"--tap-steer", steerFile(t, 6, 256) + ":0.5:2-3", "--tap-tensor", "l_out"}, 40, 1)
	dir := dirOf(t, out)
	llamatap(t, "verify", "--repair", dir)
	m := metadata(t, dir)
	if len(m.Steering) != 2 || m.Steering[1].Vector == nil || m.Steering[1].Vector.Layers != "2-3" {
		t.Errorf("steering %+v", m.Steering)
	} else if m.Tokens != nil && m.Tokens.Prompt > 0 && m.Steering[1].FirstExec == nil {
		t.Errorf("%d tokens, and steering %+v", m.Tokens.Prompt, m.Steering)
	}
}
