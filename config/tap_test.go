package config

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// world is a fake environment and file system.
type world struct {
	env   map[string]string
	files map[string]string
	arch  string
}

func (w world) options() ResolveOptions {
	return ResolveOptions{
		LookupEnv: func(name string) (string, bool) { v, ok := w.env[name]; return v, ok },
		Open: func(name string) (io.ReadCloser, error) {
			data, ok := w.files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return io.NopCloser(strings.NewReader(data)), nil
		},
		Architecture: w.arch,
	}
}

// resolve reads a command line in a world.
func resolve(w world, line ...string) (*Tap, error) {
	var t Tap
	if _, err := t.Parse(line); err != nil {
		return nil, err
	}
	return &t, t.Resolve(w.options())
}

func mustResolve(t *testing.T, w world, line ...string) *Tap {
	t.Helper()
	tap, err := resolve(w, line...)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return tap
}

func TestNothingGivenRecordsNothing(t *testing.T) {
	tap := mustResolve(t, world{})
	if tap.Recording() || tap.Records(Activations) || len(tap.Echo().Recorders) != 0 {
		t.Fatal("something is recorded without a flag")
	}
}

// TestSwitchedOff: a flag switches off what the environment records. Where nothing else is asked for, nothing is
// recorded; a flag that changes a recorder is refused then.
func TestSwitchedOff(t *testing.T) {
	on := world{env: map[string]string{"LLAMATAP_KV": "on", "LLAMATAP_KV_BLOCK": "16"}}
	if tap := mustResolve(t, on, "--tap-kv=off"); tap.Recording() {
		t.Errorf("recorded: %+v", tap.Echo().Recorders)
	}
	if tap := mustResolve(t, on, "--tap-kv=off", "--tap-ledger"); tap.Records(KV) || !tap.Records(Ledger) {
		t.Errorf("recorded: %+v", tap.Echo().Recorders)
	}
	if _, err := resolve(on, "--tap-kv=off", "--tap-codec", "lz4"); !namesAll(err, "--tap-codec | without a recorder") {
		t.Errorf("a codec alone: %v", err)
	}
}

func TestRecorderFlags(t *testing.T) {
	for _, line := range [][]string{
		{"--tap-preset", "max"}, {"--tap-purpose=debugging"}, {"--tap-granularity", "mlp_only"},
		{"--tap-layers", "0-3,7"},
		{"--tap-tensors", "l_out"}, {"--tap-attention"}, {"--tap-attention", "exact"},
	} {
		tap := mustResolve(t, world{}, line...)
		if !tap.Recording() || !tap.Records(Activations) || tap.Records("kv") {
			t.Errorf("%q: activations are not recorded, or something else is", line)
		}
	}
}

func TestDefaultsOfARecorder(t *testing.T) {
	got := mustResolve(t, world{}, "--tap-layers", "0-3,7")
	if got.Codec != "lz4" || got.DType != "f16" || got.Memory != 256*MiB || got.Overflow != OverflowBlock ||
		got.Workers != 0 ||
		got.Out != "./llamatap-runs" || got.Preset != "" || got.MemoryCeiling != 0 || got.Throughput != 0 {
		t.Errorf("defaults are %+v", got)
	}
	sel := got.Selection()
	if sel.Layers.String() != "0-3,7" || sel.Granularity != ggmlhooks.FullTensor || sel.Tensors != nil ||
		sel.Tokens != (ggmlhooks.TokenRule{}) || sel.Attention != ggmlhooks.AttentionNone {
		t.Errorf("selection is %+v", sel)
	}
}

// TestOutRecordsNothing: where runs go is no wish to record something, and one of the environment waits for a recorder.
func TestOutRecordsNothing(t *testing.T) {
	if tap := mustResolve(t, world{env: map[string]string{"LLAMATAP_OUT": "d"}}); tap.Recording() {
		t.Error("LLAMATAP_OUT alone records something")
	}
	if tap := mustResolve(t, world{}, "--tap-resume", "--tap-out", "d"); tap.Recording() || tap.Out != "d" {
		t.Errorf("--tap-out beside --tap-resume: %q, recording %v", tap.Out, tap.Recording())
	}
	if got := mustResolve(t, world{}, "--tap-out", "d", "--tap-layers", "1"); got.Preset != "" {
		t.Errorf("--tap-out beside a recorder implies preset %q", got.Preset)
	}
}

// TestPresets compares the presets with STRAP-LLM's, but for the codecs of balanced and max_compression, which keep
// the 3× that it promises.
func TestPresets(t *testing.T) {
	const table = `fast_capture full_tensor none 4 32GB
balanced full_tensor q 2 24GB
max_compression full_tensor q-fse 1 16GB
max full_tensor zstd 6 64GB
attention_analysis attention_only lz4 2 16GB
mlp_analysis mlp_only lz4 2 16GB`
	lines := strings.Split(table, "\n")
	if len(lines) != len(presets) {
		t.Fatalf("there are %d presets", len(presets))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		got := mustResolve(t, world{}, "--tap-preset", f[0])
		throughput, _ := json.Marshal(got.Throughput)
		if got.Granularity.String() != f[1] || got.Codec != f[2] || string(throughput) != f[3] ||
			got.MemoryCeiling.String() != f[4] {
			t.Errorf("%s: %v %s %v %v", f[0], got.Granularity, got.Codec, got.Throughput, got.MemoryCeiling)
		}
		if got.Memory != 256*MiB {
			t.Errorf("%s: the ceiling became a reservation of %v", f[0], got.Memory)
		}
	}
}

func TestPrecedence(t *testing.T) {
	w := world{files: map[string]string{"f.yaml": "tap:\n  preset: max\n  codec: none\n"}, env: map[string]string{}}
	steps := []struct {
		name   string
		change func(*[]string)
		codec  string
		source string
		where  string
	}{
		{"default", func(l *[]string) { *l = []string{"--tap-layers", "1"} }, "lz4", "default", ""},
		{"preset", func(l *[]string) { *l = append(*l, "--tap-preset", "max_compression") }, "q-fse", "preset",
			"preset max_compression"},
		{"file", func(l *[]string) { *l = append(*l, "--tap-config", "f.yaml") }, "none", "file", "f.yaml:3:10"},
		{"environment", func(*[]string) { w.env["LLAMATAP_CODEC"] = "zstd" }, "zstd", "environment", "LLAMATAP_CODEC"},
		{"flag", func(l *[]string) { *l = append(*l, "--tap-codec=lz4") }, "lz4", "flag", "--tap-codec"},
	}
	var line []string
	for _, step := range steps {
		step.change(&line)
		got := mustResolve(t, w, line...)
		want := Setting{Value: step.codec, Source: step.source, Where: step.where}
		if echo := got.Echo().Settings["codec"]; got.Codec != step.codec || echo != want {
			t.Errorf("%s: codec %s, echoed as %+v", step.name, got.Codec, echo)
		}
	}
	if got := mustResolve(t, w, line...); got.Preset != "max_compression" {
		t.Errorf("the file's preset %s beat the flag's", got.Preset)
	}
}

// optionValues has a value for every option.
var optionValues = map[string]string{
	"preset": "max", "purpose": "debugging", "granularity": "sampled_slices", "layers": "0-3,7",
	"tensors":   "l_out,ffn_*",
	"points":    "resid_post,blocks.3.mlp.hook_post",
	"attention": "exact", "sampling-rate": "0.25", "seed": "18446744073709551615", "tokens": "every:4",
	"start": "off", "codec": "zstd", "dtype": "bf16",
	"memory": "64M", "device-memory": "8G", "overflow": "drop", "throughput": "3.5", "workers": "3",
	"out": "elsewhere", "on-failure": "stop",
	"segment": "30m", "max-disk": "200G:rotate", "min-free": "3G", "preallocate": "64M", "redact": "text",
	"sync": "interval:250ms", "checkpoint-every": "64", "checkpoint-path": "a.json", "checkpoint-state": "on",
	"resume": "a/run", "sink": "unix:/a/b", "dataset": "a/set", "dataset-shard-mb": "8",
	"dataset-window": "4096", "dataset-seed": "5", "error": "0.01", "error-metric": "nrmse",
	"resource-level": "VERBOSE", "resource-path": "a.jsonl", "resource-rate": "1000", "resource-sample": "8",
	"resource-rotate": "64M", "legacy-estimates": "on", "kv": "on", "requests": "on",
	"request-sample": "1/100,slower:2s,errors", "otlp": "http://localhost:4318", "otlp-texts": "512",
	"cold":     "on",
	"kv-block": "16", "regions": "on",
	"kv-events": "tcp://127.0.0.1:5557", "kv-events-replay": "tcp://*:5558", "kv-events-topic": "kv",
	"kv-events-block": "64", "kv-events-seed": "42", "kv-events-format": "array",
	"ledger": "windows", "ledger-window": "50ms",
	"samples": "perf:faults,pages", "samples-period": "5000", "samples-ring": "1M", "process-interval": "250ms",
	"host": "block,waits", "host-interval": "250ms", "host-details": "on",
	"hosts": "gpu1=10.0.0.2:7878", "hosts-token": "token", "steer": "code.gguf:0.5:3-5",
}

func TestEveryOptionInEverySpelling(t *testing.T) {
	for i := range tapOptions {
		o := &tapOptions[i]
		if o.name == "config" {
			continue
		}
		value, ok := optionValues[o.name]
		if !ok {
			t.Errorf("no test value for %s", o.flag())
			continue
		}
		var context []string
		switch o.name {
		case "sampling-rate", "seed":
			context = []string{"--tap-granularity", "sampled_slices"}
		case "error", "error-metric":
			context = []string{"--tap-preset", "balanced"}
		case "dtype":
			context = []string{"--tap-preset", "fast_capture"}
		case "checkpoint-path", "checkpoint-state":
			context = []string{"--tap-preset", "balanced", "--tap-checkpoint-every", "9"}
		case "dataset-shard-mb", "dataset-window", "dataset-seed":
			context = []string{"--tap-preset", "balanced", "--tap-dataset", "d"}
		case "resource-path", "resource-sample", "resource-rate", "resource-rotate", "legacy-estimates":
			context = []string{"--tap-resource-level", "MINIMAL"}
		case "kv-block":
			context = []string{"--tap-kv"}
		case "kv-events", "otlp-texts":
			context = []string{"--tap-requests"}
		case "request-sample":
			context = []string{"--tap-requests", "--tap-tensors", "l_out*"}
		case "kv-events-replay", "kv-events-topic", "kv-events-block", "kv-events-seed", "kv-events-format":
			context = []string{"--tap-requests", "--tap-kv-events", "connect:tcp://router:5557"}
		case "samples-period", "samples-ring", "process-interval":
			context = []string{"--tap-samples", "perf"}
		case "ledger-window":
			context = []string{"--tap-ledger"}
		case "hosts":
			context = []string{"--tap-host", "block"}
		case "hosts-token":
			context = []string{"--tap-hosts", "a=b:1"}
		case "host-interval", "host-details":
			context = []string{"--tap-host", "block"}
		default:
			if o.role == roleModifier || o.role == roleRun {
				context = []string{"--tap-preset", "balanced"}
			}
		}
		byFlag := mustResolve(t, world{}, append(context, o.flag()+"="+value)...)
		byEnv := mustResolve(t, world{env: map[string]string{o.envs()[0]: value}}, context...)
		w := world{files: map[string]string{"f": "tap:\n  " + o.key() + ": " + value + "\n"}}
		byFile := mustResolve(t, w, append(context, "--tap-config=f")...)
		want := byFlag.Echo().Settings[o.key()].Value
		if byDefault := o.get(mustResolve(t, world{}, context...)); o.name != "preset" &&
			reflect.DeepEqual(want, byDefault) {
			t.Errorf("%s: the flag changed nothing from %v", o.name, byDefault)
		}
		for spelling, got := range map[string]*Tap{"environment": byEnv, "file": byFile} {
			echo := got.Echo().Settings[o.key()]
			if !reflect.DeepEqual(echo.Value, want) || echo.Source != spelling {
				t.Errorf("%s: by flag %v, by %s %+v", o.name, want, spelling, echo)
			}
		}
	}
}

func TestAttentionForms(t *testing.T) {
	for _, c := range []struct {
		line []string
		want ggmlhooks.AttentionMode
		rest []string
	}{
		{[]string{"--tap-attention"}, ggmlhooks.AttentionKeep, nil},
		{[]string{"--tap-attention", "-m", "x"}, ggmlhooks.AttentionKeep, []string{"-m", "x"}},
		{[]string{"--tap-attention", "model.gguf"}, ggmlhooks.AttentionKeep, []string{"model.gguf"}},
		{[]string{"--tap-attention", "exact", "x"}, ggmlhooks.AttentionExact, []string{"x"}},
		{[]string{"--tap-attention=exact"}, ggmlhooks.AttentionExact, nil},
		{[]string{"--tap-attention", "keep"}, ggmlhooks.AttentionKeep, nil},
		{[]string{"--tap-layers=1", "--tap-attention=off"}, ggmlhooks.AttentionNone, nil},
	} {
		var tap Tap
		rest, err := tap.Parse(c.line)
		if err == nil {
			err = tap.Resolve(world{}.options())
		}
		if err != nil || tap.Attention != c.want || !slices.Equal(rest, c.rest) {
			t.Errorf("%q: attention %v, rest %q, error %v", c.line, tap.Attention, rest, err)
		}
	}
}

func TestAttentionAlone(t *testing.T) {
	for _, line := range []string{"--tap-attention", "--tap-attention=exact --tap-tokens=last --tap-out=d"} {
		if got := mustResolve(t, world{}, strings.Fields(line)...); !got.AttentionAlone() ||
			got.Granularity != ggmlhooks.FullTensor || got.Preset != "" {
			t.Errorf("%s: alone is %v, granularity %v, preset %q", line, got.AttentionAlone(), got.Granularity,
				got.Preset)
		}
	}
	for _, line := range []string{
		"--tap-attention --tap-tensors=l_out", "--tap-attention --tap-granularity=full_tensor",
		"--tap-attention --tap-preset=max",
		"--tap-attention --tap-layers=2", "--tap-attention --tap-purpose=debugging", "--tap-preset=max",
	} {
		if got := mustResolve(t, world{}, strings.Fields(line)...); got.AttentionAlone() {
			t.Errorf("%s: attention counts as alone", line)
		}
	}
}

// TestOldNames: flags are read by their deprecated names, too, and what a user wrote is what messages name.
func TestOldNames(t *testing.T) {
	for _, line := range []string{"--tap-tensor l_out --tap-layer 0-1 --tap-token last",
		"--tap-tensors=l_out --tap-layers=0-1 --tap-tokens=last"} {
		tap := mustResolve(t, world{}, strings.Fields(line)...)
		setting := tap.Echo().Settings["layers"]
		if tap.Layers.String() != "0-1" || tap.Tensors[0] != "l_out" || !strings.Contains(line, setting.Where) ||
			setting.Where == "" {
			t.Errorf("%s: layers %v, tensors %v, %+v", line, tap.Layers, tap.Tensors, setting)
		}
	}
}

func TestResolveAgainWithArchitecture(t *testing.T) {
	tap := mustResolve(t, world{}, "--tap-purpose", "performance_analysis")
	if tap.Purpose == "" || tap.Codec != "q" {
		t.Fatalf("before the model is known: codec %s", tap.Codec)
	}
	if err := tap.Resolve(world{arch: "qwen3"}.options()); err != nil {
		t.Fatal(err)
	}
	if tap.Codec != "q-fse" || tap.MemoryCeiling != 16*GB || tap.Preset != "balanced" {
		t.Errorf("for qwen3: %s, %v, %s", tap.Codec, tap.MemoryCeiling, tap.Preset)
	}
	if !strings.Contains(tap.Echo().Reason, "family qwen") {
		t.Errorf("the reason is %q", tap.Echo().Reason)
	}
	if got := mustResolve(t, world{arch: "qwen3"}, "--tap-purpose=performance_analysis",
		"--tap-codec=none"); got.Codec != "none" {
		t.Errorf("the purpose's codec %s beat the flag's", got.Codec)
	}
}

func TestHigherSourceDecidesBetweenPresetAndPurpose(t *testing.T) {
	w := world{env: map[string]string{"LLAMATAP_PURPOSE": "debugging"}}
	if got := mustResolve(t, w, "--tap-preset", "max"); got.Preset != "max" || got.Purpose != "" {
		t.Errorf("preset flag against purpose in the environment: %q, %q", got.Preset, got.Purpose)
	}
	w = world{env: map[string]string{"LLAMATAP_PRESET": "max"}}
	if got := mustResolve(t, w, "--tap-purpose", "debugging"); got.Preset != "fast_capture" ||
		got.Purpose != Debugging {
		t.Errorf("purpose flag against preset in the environment: %q, %q", got.Preset, got.Purpose)
	}
}

func TestEchoIsJSON(t *testing.T) {
	tap := mustResolve(t, world{}, "--tap-preset=balanced", "--tap-tokens=2:", "--tap-memory=1GiB")
	data, err := json.Marshal(tap.Echo())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"recorders":["activations"]`, `"memory":{"value":1073741824,"source":"flag","where":"--tap-memory"}`,
		`"tokens":{"value":"2:","source":"flag","where":"--tap-tokens"}`, `"layers":{"value":"all","source":"default"}`,
		`"granularity":{"value":"full_tensor","source":"preset","where":"preset balanced"}`,
		`"memory_ceiling":24000000000`,
		`"attention":{"value":"off","source":"default"}`,
		`"preset":{"value":"balanced","source":"flag","where":"--tap-preset"}`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in %s", want, data)
		}
	}
	if strings.Contains(string(data), `"purpose"`) || strings.Contains(string(data), `"config"`) {
		t.Errorf("an absent value is echoed: %s", data)
	}
}

func TestCheckLayers(t *testing.T) {
	tap := mustResolve(t, world{}, "--tap-layers", "0-3,7")
	if err := tap.CheckLayers(8); err != nil {
		t.Errorf("8 layers: %v", err)
	}
	want := "--tap-layers names layer 7, and the model has layers 0 to 6: shorten the list"
	if err := tap.CheckLayers(7); err == nil || err.Error() != want {
		t.Errorf("7 layers: %v", err)
	}
}

func TestMissingConfigFile(t *testing.T) {
	_, err := resolve(world{}, "--tap-config", "no.yaml")
	if want := `--tap-config: there is no file "no.yaml": give an existing YAML file`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v", err)
	}
	var tap Tap
	dir := t.TempDir()
	if _, err := tap.Parse([]string{"--tap-config=" + dir}); err != nil {
		t.Fatal(err)
	}
	if err := tap.Resolve(ResolveOptions{}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a folder as configuration: %v", err)
	}
	file := dir + "/tap.yaml"
	if err := os.WriteFile(file, []byte("tap: {preset: max}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LLAMATAP_CONFIG", file)
	var real Tap
	if err := real.Resolve(ResolveOptions{}); err != nil || real.Preset != "max" || real.ConfigFile != file {
		t.Errorf("by LLAMATAP_CONFIG: preset %q, file %q, %v", real.Preset, real.ConfigFile, err)
	}
	unreadable := ResolveOptions{Open: func(string) (io.ReadCloser,
		error) {
		return nil, errors.New("permission denied")
	}}
	if err := real.Resolve(unreadable); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("an unreadable file: %v", err)
	}
}

func TestStandingSettingsRecordNothing(t *testing.T) {
	w := world{env: map[string]string{"LLAMATAP_CODEC": "zstd", "LLAMATAP_CONFIG": "f"},
		files: map[string]string{"f": "tap: {memory: 64M}"}}
	if got := mustResolve(t, w); got.Recording() {
		t.Errorf("%+v records", got)
	}
	if got := mustResolve(t, w, "--tap-layers", "1"); got.Codec != "zstd" || got.Memory != 64*MiB {
		t.Errorf("codec %s, memory %v", got.Codec, got.Memory)
	}
}
