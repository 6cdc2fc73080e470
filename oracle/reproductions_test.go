//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	root "github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// prepared are the runs and files that the cases below share.
type prepared struct {
	dir    string  // of files and copies
	tensor outcome // every computed node of 5 tokens, with the default codec
	kv     outcome // lives and ledger of a cache that is shifted, and events, without tensors
}

func prepare(t *testing.T) *prepared {
	t.Helper()
	p := &prepared{dir: t.TempDir()}
	greedy := slices.Clip([]string{"run", "-p", "Hello", "--temp", "0", "-t", "1", "--ignore-eos"})
	p.tensor = llamatap(t, append(greedy, "-n", "4", "--tap-granularity", "full_tensor")...).good(t)
	p.kv = llamatap(t, append(greedy, "-n", "120", "-c", "64", "--context-shift",
		"--tap-kv", "--tap-kv-block", "1", "--tap-ledger", "--tap-resource-level", "MINIMAL")...).good(t)
	return p
}

// out is the output folder of a run.
func (o outcome) out() string { return filepath.Dir(filepath.Dir(o.dirs[0])) }

// copy copies a run to a folder of its own.
func (p *prepared) copy(t *testing.T, o outcome, name string) string {
	t.Helper()
	to := filepath.Join(p.dir, name, "model", filepath.Base(o.dirs[0]))
	copyFiles(t, o.dirs[0], to)
	return to
}

// write writes a file, with {model} replaced by the path of the default model.
func (p *prepared) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "{model}", testenv.Model(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask runs a command whose newest run is that of out.
func ask(t *testing.T, out string, args ...string) outcome {
	t.Helper()
	return finish(t, command(t, args...), out)
}

// TestOneCommand runs one command for each case, on a recorded run or a written file, and compares its status and what
// it prints.
func TestOneCommand(t *testing.T) {
	p := prepare(t)
	tensor, kv := p.tensor.dirs[0], p.kv.dirs[0]
	renamed := p.copy(t, p.tensor, "renamed")
	manifest := filepath.Join(renamed, rundir.ManifestName)
	text := bytes.Replace(content(t, manifest), []byte(filepath.Base(tensor)), []byte("run_20010101_000000_aaaa"), 1)
	if err := os.WriteFile(manifest, text, 0o600); err != nil {
		t.Fatal(err)
	}
	unsealed := p.copy(t, p.tensor, "unsealed") // as a kill between writing and renaming the manifest leaves it
	half := filepath.Join(unsealed, "."+rundir.ManifestName+".part")
	if err := os.Rename(filepath.Join(unsealed, rundir.ManifestName), half); err != nil {
		t.Fatal(err)
	}
	quantised := llamatap(t, "run", "-p", "Hello", "-n", "2", "--tap-codec", "q", "--tap-tensors", "l_out").good(t)
	theirs := p.write(t, "theirs.yaml", `experiment: {name: e}
models: [{id: a, engine: llamacpp, path: "{model}"}]
collector: {primary: process_monitor, fallback: null}
`)
	perf := p.write(t, "perf.yaml", `experiment: {name: p}
workload: {prompts: Hello, max_tokens: 4}
collector: {primary: perf}
`)
	twice := p.write(t, "twice.jsonl", `{"prompt":"a","n_predict":2,"n_predict":3}`+"\n")
	for _, c := range []struct {
		name   string
		args   []string
		status int
		has    []string // what is printed has all of these
		lacks  []string
	}{
		{"cat prints a tensor whose rows differ in shape",
			[]string{"cat", tensor, "--tensor", "cache_v_l5 (view)"}, 0, []string{"]"}, nil},
		{"inspect describes a run without tensors", []string{"inspect", kv}, 0, []string{"ledger"}, nil},
		{"runs lists the runs", []string{"runs"}, 0, []string{filepath.Base(kv)}, nil},
		{"a misspelt command has a suggestion", []string{"expor"}, 2, []string{`"expor"`, `"export"`}, nil},
		{"kv takes the newest run", []string{"kv"}, 0, nil, nil},
		{"memory takes the newest run", []string{"memory"}, 0, nil, nil},
		{"mrm analyze takes the newest run", []string{"mrm", "analyze"}, 0, nil, nil},
		{"inspect reports that a codec is lossy",
			[]string{"inspect", "--json", quantised.dirs[0]}, 0, []string{`"lossy": true`}, nil},
		{"a data set leaves no token out unasked",
			[]string{"export", "--to", "dataset", "--tensor", "l_out*", "-o", filepath.Join(p.dir, "set"), tensor},
			1, []string{"l_out-5", "--phase decode"}, nil},
		{"a folder for no recorder is refused",
			[]string{"run", "-p", "Hello", "-n", "2", "--tap-out", filepath.Join(p.dir, "none")},
			2, []string{"--tap-out", "--tap-tensor"}, []string{"captured"}},
		{"too little memory is answered with what is enough",
			[]string{"run", "-p", "Hello", "-n", "2", "--tap-tensors", "l_out", "--tap-memory", "400K"},
			2, []string{"at least 8M"}, nil},
		{"verify finds another id in the manifest", []string{"verify", renamed}, 1, []string{"checksum"}, nil},
		{"repair removes half a manifest", []string{"verify", "--repair", unsealed}, 0, nil, []string{"file exists"}},
		{"a configuration of mrm-trace is valid",
			[]string{"mrm", "validate", "--config", theirs}, 0, []string{"1 cell", "process_monitor"}, nil},
		{"perf is refused before it fails every cell",
			[]string{"mrm", "validate", "--config", perf}, 2, []string{"PMU", "fallback"}, nil},
		{"exec that recorded nothing fails",
			[]string{"exec", "--tap-kv", "--", "true"}, 3, []string{"nothing was recorded"}, nil},
		{"a key that a prompt has twice is an error",
			[]string{"run", "--prompts", twice}, 1, []string{`n_predict\" is given twice`}, []string{`"text"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(c.args, perf) && samplesMemory() {
				testenv.Beyond(t, "a machine without a PMU that samples memory", "perf runs on this one")
			}
			o := ask(t, p.kv.out(), c.args...)
			printed := o.stdout + o.stderr
			if o.status != c.status {
				t.Errorf("status %d, want %d", o.status, c.status)
			}
			for _, want := range c.has {
				if !strings.Contains(printed, want) {
					t.Errorf("it prints no %q", want)
				}
			}
			for _, not := range c.lacks {
				if strings.Contains(printed, not) {
					t.Errorf("it prints %q", not)
				}
			}
			if t.Failed() {
				t.Logf("%.1000s", printed)
			}
		})
	}
}

// samplesMemory reports whether this machine has a PMU that perf samples memory with.
func samplesMemory() bool {
	for _, name := range []string{"cpu/events/mem-loads", "cpu_core/events/mem-loads", "ibs_op", "arm_spe_0"} {
		if _, err := os.Stat(filepath.Join("/sys/bus/event_source/devices", name)); err == nil {
			return true
		}
	}
	return false
}

// TestSeveralCommands runs a sequence of commands for each case.
func TestSeveralCommands(t *testing.T) {
	p := prepare(t)
	for name, check := range map[string]func(t *testing.T, p *prepared){
		"the summary and inspect print one size for the same bytes":    sameSizes,
		"a stream of STRAP-LLM can be printed":                         catOfStrap,
		"metrics and suitability agree on every column that both have": oneDefinition,
		"figures are small and can be PDF":                             smallFigures,
		"escapes of a model's name do not reach the terminal":          escapedName,
		"text in a pipe ends in a newline":                             finalNewline,
		"a process that is not there is refused":                       noSuchProcess,
		"a server without a token shows nothing":                       needsToken,
		"a FIFO in a run is not waited for":                            refusesFIFO,
		"verify, export and diff show their progress on a terminal":    showsProgress,
		"a FIFO in a run does not hold up metrics":                     metricsOfFIFO,
		"idle clients lock nobody out":                                 idleClients,
		"a server lists its routes as they are asked for":              listsRoutes,
		"--format, --json and -o FILE are spelt alike":                 oneSpelling,
		"a live run is not damaged":                                    liveRun,
		"repair removes what a kill left":                              removesLeft,
		"a segment that was just begun hides no other":                 emptySegment,
		"the cache of a prompt is for its owner alone":                 ownCache,
		"a short recording is drawn as levels":                         drawsLevels,
		"times are timestamps, and tables name the step":               typedTables,
		"the example reader reads the default codec":                   exampleReader,
		"the overhead contains the waiting":                            overheadWaits,
	} {
		t.Run(name, func(t *testing.T) { check(t, p) })
	}
}

func sameSizes(t *testing.T, p *prepared) {
	found := regexp.MustCompile(`captured +\d+ tensors, ([^,]+), stored`).FindStringSubmatch(p.tensor.stderr)
	if found == nil {
		t.Fatalf("no size in\n%s", p.tensor.stderr)
	}
	if printed := llamatap(t, "inspect", p.tensor.dirs[0]).good(t).stdout; !strings.Contains(printed, found[1]) {
		t.Errorf("the summary prints %q, inspect\n%.600s", found[1], printed)
	}
}

// catOfStrap: every token has the same tensors. The last layer computes output rows only, so its tensors are left out,
// by name, unless tokens are chosen that have them.
func catOfStrap(t *testing.T, p *prepared) {
	run := llamatap(t, "run", "-p", "func main() {", "-n", "4", "--ignore-eos", "--tap-tensors", "l_out").good(t)
	name := filepath.Join(p.dir, "strap.stream")
	llamatap(t, "export", "--to", "strap", "--tensor", "l_out-0", "-o", name, run.dirs[0]).good(t)
	if o := llamatap(t, "cat", name, "--tensor", "l_out-0"); o.status != 0 || !strings.Contains(o.stdout, "256") {
		t.Errorf("status %d: %s%.300s", o.status, o.stderr, o.stdout)
	}
	for phase, want := range map[string][]string{"": {"of 5 tensors", "l_out-5: left out"},
		"decode": {"of 6 tensors"}} {
		args := []string{"export", "--to", "strap", "-o", filepath.Join(p.dir, "all"+phase+".stream"), run.dirs[0]}
		if phase != "" {
			args = append(args, "--phase", phase)
		}
		o := llamatap(t, args...).good(t)
		for _, words := range want {
			if printed := o.stdout + o.stderr; !strings.Contains(printed, words) {
				t.Errorf("phase %q: no %q in %s", phase, words, printed)
			}
		}
	}
}

// escapedName: a model's file is somebody else's, and its name may be an escape sequence.
func escapedName(t *testing.T, p *prepared) {
	named, escape := []byte("gopher-6m"), []byte("\x1b[31mg-6m")
	if !bytes.Contains(root.DefaultModel, named) {
		t.Fatalf("the default model is not called %s", named)
	}
	path := filepath.Join(p.dir, "escape.gguf")
	if err := os.WriteFile(path, bytes.Replace(root.DefaultModel, named, escape, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	run := llamatap(t, "run", "-m", path, "-p", "Hello", "-n", "2", "--temp", "0", "--tap-tensors", "l_out").good(t)
	inspected := llamatap(t, "inspect", run.dirs[0]).good(t).stdout
	for what, printed := range map[string]string{"run": run.stderr, "inspect": inspected} {
		if strings.Contains(printed, "\x1b") || !strings.Contains(printed, "31mg-6m") {
			t.Errorf("%s prints %q", what, printed)
		}
	}
}

func finalNewline(t *testing.T, _ *prepared) {
	for _, n := range []string{"3", "4"} {
		if o := llamatap(t, "run", "-p", "func main() {", "-n", n, "--temp", "0").good(t); !strings.HasSuffix(o.stdout,
			"\n") {
			t.Errorf("the text of %s tokens is %q", n, o.stdout)
		}
	}
}

// exampleReader lists a stream with the Python package.
func exampleReader(t *testing.T, p *prepared) {
	cmd := pythonPackage(t, "-m", "llamatap", filepath.Join(p.tensor.dirs[0], "activations.stream"))
	if text, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(text), "result_output") {
		t.Errorf("%v\n%.1000s", err, text)
	}
}

// overheadWaits: a model that waits for a pool of 8 MiB, which one worker empties at a tenth of its speed, loses that
// time, waiting or in cuts of the graph, and the overhead contains it.
func overheadWaits(t *testing.T, _ *prepared) {
	o := llamatap(t, "run", "-p", "func main() {", "-n", "60", "--temp", "0", "-t", "2", "--ignore-eos",
		"--tap-granularity", "full_tensor", "--tap-memory", "8M", "--tap-codec", "zstd-shuffle", "--tap-dtype", "f32",
		"--tap-workers", "1").good(t)
	figure := func(pattern string) float64 {
		found := regexp.MustCompile(pattern).FindStringSubmatch(o.stderr)
		if found == nil {
			return 0
		}
		value, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 2 {
			value *= map[string]float64{"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[found[2]]
		}
		return value
	}
	percent := figure(`overhead +(?:at least )?([0-9.]+)(?: to [0-9.]+)? %`)
	lost := figure(`([0-9.]+) (\S?s)(?: per token)? waiting`) + figure(`([0-9.]+) (\S?s) in [0-9.]+ cuts`)
	// A decoded token takes 1/rate seconds. Half of what is lost allows for what the rate leaves out: prompt and start.
	rate := figure(`(?:generated|decoded) \(([0-9.]+) tokens/s\)`)
	if least := 50 * lost * rate; least == 0 || percent < least {
		t.Errorf("%v %% overhead, and waiting alone takes about %.2f %%\n%s", percent, 2*least, o.stderr)
	}
}
