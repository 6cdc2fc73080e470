package config

import (
	"strings"
	"testing"
)

// namesAll reports whether an error is one line, says what to do after a colon, and names the facts, which are
// separated by " | ", in their order.
func namesAll(err error, facts string) bool {
	if err == nil {
		return false
	}
	rest := err.Error()
	if strings.Contains(rest, "\n") || !strings.Contains(rest, ": ") {
		return false
	}
	for _, fact := range strings.Split(facts, " | ") {
		_, after, found := strings.Cut(rest, fact)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// TestErrors: every refusal names what is at fault and what to use instead.
func TestErrors(t *testing.T) {
	cases := []struct {
		name string
		line string // split at blanks
		w    world
		want string // facts that the message names
	}{
		{"modifier alone", "--tap-codec lz4", world{},
			"--tap-codec | --tap-preset | --tap-purpose | --tap-granularity | --tap-layer | --tap-tensor | " +
				"--tap-point | --tap-attention | --tap-resource-level | --tap-kv | --tap-regions | --tap-ledger | " +
				"--tap-samples | --tap-host"},
		{"a folder alone", "--tap-out d", world{}, "--tap-out | --tap-preset"},
		{"two modifiers alone", "--tap-tokens last --tap-overflow drop",
			world{env: map[string]string{"LLAMATAP_SEED": "1"}}, "LLAMATAP_SEED | --tap-tokens | --tap-overflow"},
		{"config that sets a modifier only",
			"--tap-config f", world{files: map[string]string{"f": "tap: {dtype: f32}"}}, "f:1:14 | --tap-config"},
		{"unknown granularity", "--tap-granularity half", world{},
			`--tap-granularity | unknown | "half" | full_tensor | sampled_slices | attention_only | mlp_only`},
		{"unknown point", "--tap-point resid_pots", world{},
			`--tap-point | unknown | "resid_pots" | mean resid_post?`},
		{"unknown hook", "--tap-point blocks.0.hook_x", world{}, `"blocks.0.hook_x" | docs/POINTS.md`},
		{"unknown preset", "--tap-preset turbo", world{},
			`--tap-preset | unknown | "turbo" | fast_capture, balanced, max_compression, max, attention_analysis, ` +
				`mlp_analysis`},
		{"unknown purpose", "--tap-purpose fun", world{},
			`--tap-purpose | unknown | "fun" | interpretability, debugging, performance_analysis, full_capture`},
		{"unknown codec", "--tap-layers 1 --tap-codec gzip", world{},
			`--tap-codec | unknown | "gzip" | none, lz4, zstd, q, q-fse, zstd-shuffle`},
		{"unknown dtype", "--tap-layers 1 --tap-dtype f64", world{}, `--tap-dtype | unknown | "f64" | f16, f32, bf16`},
		{"unknown action", "--tap-layers 1 --tap-on-failure die", world{},
			`--tap-on-failure | unknown | "die" | continue, stop`},
		{"segment", "--tap-layers 1 --tap-segment 1x", world{}, `--tap-segment | "1x" | 256M | 1.5G | 512KiB | 24GB`},
		{"segment in time", "--tap-layers 1 --tap-segment 10ms", world{},
			`--tap-segment | "10ms" | 90s | 30m | 1h | 512M | 1G`},
		{"no interval", "--tap-layers 1 --tap-checkpoint-every 0", world{}, `--tap-checkpoint-every | "0"`},
		{"a state alone", "--tap-layers 1 --tap-checkpoint-state", world{},
			"--tap-checkpoint-state | checkpoints | --tap-checkpoint-every"},
		{"requests with checkpoints", "--tap-layers 1 --tap-checkpoint-every 9 --tap-otlp http://c", world{},
			"--tap-otlp | checkpoints | drop --tap-otlp"},
		{"a path alone", "--tap-layers 1 --tap-checkpoint-path a", world{},
			"--tap-checkpoint-path | checkpoints | --tap-checkpoint-every"},
		{"checkpoints of drops", "--tap-layers 1 --tap-checkpoint-every 9 --tap-overflow drop", world{},
			"--tap-checkpoint-every | --tap-overflow"},
		{"checkpoints of segments", "--tap-layers 1 --tap-checkpoint-every 9 --tap-segment 1G", world{},
			"--tap-checkpoint-every | --tap-segment | checkpoints"},
		{"dataset there already", "--tap-layers 1 --tap-dataset /", world{}, `--tap-dataset | already`},
		{"dataset with a stream", "--tap-layers 1 --tap-dataset d --tap-sink -", world{}, `--tap-dataset | --tap-sink`},
		{"dataset in samples", "--tap-granularity sampled_slices --tap-dataset d", world{},
			`--tap-dataset | sampled_slices`},
		{"dataset, codec", "--tap-layers 1 --tap-codec q --tap-dataset d", world{}, `--tap-dataset | --tap-codec`},
		{"dataset, overflow", "--tap-layers 1 --tap-overflow drop --tap-dataset d", world{}, `--tap-dataset | drop`},
		{"dataset of events", "--tap-resource-level MINIMAL --tap-dataset d", world{}, `--tap-dataset`},
		{"no dataset", "--tap-layers 1 --tap-dataset-seed 1", world{}, `--tap-dataset-seed | --tap-dataset`},
		{"sink", "--tap-layers 1 --tap-sink tcp:1", world{}, `--tap-sink | "tcp:1" | unix:PATH | fd:N`},
		{"sink of the program", "--tap-layers 1 --tap-sink fd:2", world{}, `--tap-sink | "fd:2" | fd:3`},
		{"sync policy", "--tap-layers 1 --tap-sync often", world{},
			`--tap-sync | unknown | "often" | none, interval, token`},
		{"sync time", "--tap-layers 1 --tap-sync interval:1us", world{},
			`--tap-sync | "interval:1us" | 10ms | interval:200ms`},
		{"sync token time", "--tap-layers 1 --tap-sync token:1s", world{}, `--tap-sync | "token:1s"`},
		{"small segment", "--tap-layers 1 --tap-segment 10K", world{}, `--tap-segment | "10K" | 64K`},
		{"disk action", "--tap-layers 1 --tap-max-disk 1G:drop", world{},
			`--tap-max-disk | unknown | "drop" | stop, rotate`},
		{"small disk", "--tap-layers 1 --tap-max-disk 1M", world{}, `--tap-max-disk | "1M" | 4M`},
		{"rotation within one segment", "--tap-layers 1 --tap-max-disk 1G:rotate --tap-segment 600M", world{},
			"--tap-segment | 600M | --tap-max-disk | 1G"},
		{"redaction", "--tap-layers 1 --tap-redact ids", world{}, `--tap-redact | unknown | "ids" | none, text`},
		{"unknown overflow", "--tap-layers 1 --tap-overflow spill", world{},
			`--tap-overflow | unknown | "spill" | block, drop`},
		{"unknown attention mode", "--tap-attention=all", world{}, `--tap-attention | unknown | "all" | keep, exact`},
		{"layers", "--tap-layers 3-1", world{}, `--tap-layers | "3-1" | 1023`},
		{"tokens", "--tap-layers 1 --tap-tokens some", world{}, `--tap-tokens | "some" | all, last, A | every:N`},
		{"glob", "--tap-tensors l_[out", world{}, `--tap-tensors | "l_[out"`},
		{"empty glob", "--tap-tensors l_out,,x", world{}, `--tap-tensors | "l_out,,x" | empty | l_out`},
		{"rate of zero", "--tap-granularity sampled_slices --tap-sampling-rate 0", world{},
			`--tap-sampling-rate | "0" | 0.1`},
		{"rate above one", "--tap-granularity sampled_slices --tap-sampling-rate 1.01", world{},
			`--tap-sampling-rate | "1.01"`},
		{"rate that is no number", "--tap-granularity sampled_slices --tap-sampling-rate NaN", world{},
			`--tap-sampling-rate | "NaN"`},
		{"rate without sampling", "--tap-preset balanced --tap-sampling-rate 0.5", world{},
			"--tap-sampling-rate | sampled_slices | full_tensor | --tap-granularity | sampled_slices"},
		{"seed without sampling", "--tap-layers 1 --tap-seed 3", world{},
			"--tap-seed | sampled_slices | full_tensor | --tap-granularity | sampled_slices"},
		{"seed", "--tap-granularity sampled_slices --tap-seed=-1", world{}, `--tap-seed | "-1" | 18446744073709551615`},
		{"error of a lossless codec", "--tap-layers 1 --tap-error 0.01", world{}, "--tap-error | --tap-codec"},
		{"error", "--tap-layers 1 --tap-codec q --tap-error 2", world{}, `--tap-error | "2" | 0.25 | 0.001`},
		{"element type of a codec of its own", "--tap-layers 1 --tap-codec q --tap-dtype f16", world{},
			"--tap-dtype | --tap-codec | contradict | --tap-codec | --tap-dtype"},
		{"attention on the MLP", "--tap-attention --tap-granularity mlp_only", world{},
			"--tap-attention | mlp_only | --tap-granularity | contradict | --tap-granularity | full_tensor"},
		{"attention on an MLP preset", "--tap-attention --tap-preset mlp_analysis", world{},
			"--tap-attention | mlp_only | mlp_analysis | contradict | --tap-granularity | full_tensor"},
		{"attention of samples", "--tap-attention --tap-granularity sampled_slices", world{},
			"--tap-attention | sampled_slices | --tap-granularity"},
		{"point outside of the layers", "--tap-point z,resid_post.3 --tap-layer 4-5", world{},
			"--tap-point | resid_post.3 | --tap-layer | layer 3 | without a layer"},
		{"preset and purpose", "--tap-preset max --tap-purpose debugging", world{},
			"--tap-preset | --tap-purpose | contradict"},
		{"memory above the ceiling", "--tap-preset max_compression --tap-memory 20GB", world{},
			"--tap-memory | 20GB | max_compression | 16GB | fast_capture | 32GB | 24GB | 64GB"},
		{"memory above every ceiling", "--tap-preset max --tap-memory 100GB", world{}, "--tap-memory | 100GB | 64GB"},
		{"too little memory", "--tap-layers 1 --tap-memory 10K", world{}, `--tap-memory | "10K" | 8M`},
		{"no size", "--tap-layers 1 --tap-memory lots", world{}, `--tap-memory | "lots" | 256M | 1.5G | 512KiB | 24GB`},
		{"workers", "--tap-layers 1 --tap-workers 9999", world{}, `--tap-workers | "9999" | 256`},
		{"throughput", "--tap-layers 1 --tap-throughput fast", world{}, `--tap-throughput | "fast" | 2.0`},
		{"empty value", "--tap-out=", world{}, "--tap-out | empty"},
		{"invalid UTF-8", "--tap-tensors=l_\xff", world{}, `--tap-tensors | "l_\xff" | UTF-8`},
		{"environment", "--tap-layers 1", world{env: map[string]string{"LLAMATAP_CODEC": "gzip"}},
			`LLAMATAP_CODEC | unknown | "gzip" | none, lz4, zstd, q, q-fse, zstd-shuffle`},
		{"an overridden value is checked too", "--tap-layers 1 --tap-codec lz4",
			world{env: map[string]string{"LLAMATAP_CODEC": "gzip"}},
			`LLAMATAP_CODEC | unknown | "gzip" | none, lz4, zstd, q, q-fse, zstd-shuffle`},
		{"file", "--tap-config f", world{files: map[string]string{"f": "tap:\n  preset: max\n  codec: gzip\n"}},
			`f:3:10 | unknown | "gzip" | none, lz4, zstd, q, q-fse, zstd-shuffle`},
		{"unknown flag", "--tap-granularty mlp_only", world{}, "unknown | --tap-granularty | --tap-granularity"},
		{"unknown flag with value", "--tap-layr=3", world{}, "unknown | --tap-layr | --tap-layer"},
		{"unknown flag far from all", "--tap-quux", world{}, "unknown | --tap-quux | help recording"},
		{"no name", "--tap-", world{}, "unknown | --tap- | help recording"},
		{"resource level", "--tap-resource-level loud", world{},
			`--tap-resource-level | unknown | "loud" | MINIMAL, DETAILED, VERBOSE`},
		{"resource level of the other system",
			"--tap-kv", world{env: map[string]string{"LLAMA_RESOURCE_LOG_LEVEL": "all"}},
			`LLAMA_RESOURCE_LOG_LEVEL | unknown | "all" | MINIMAL, DETAILED, VERBOSE`},
		{"block of cells", "--tap-kv --tap-kv-block 0", world{}, `--tap-kv-block | "0" | 1048576`},
		{"ledger", "--tap-ledger=sums", world{}, `--tap-ledger | unknown | "sums" | rows, windows, off`},
		{"ledger window", "--tap-ledger windows --tap-ledger-window 1", world{},
			`--tap-ledger-window | "1" | 1ms | 100ms`},
		{"ledger without regions", "--tap-ledger --tap-regions=off", world{}, "--tap-regions | --tap-ledger"},
		{"ledger with checkpoints", "--tap-preset balanced --tap-ledger --tap-checkpoint-every 8", world{},
			"--tap-ledger | checkpoints | --tap-ledger | checkpoints"},
		{"sample of requests", "--tap-requests --tap-tensors l_out --tap-request-sample 1/0", world{},
			`--tap-request-sample | "1/0" | 1/N | slower:TIME | errors`},
		{"sample without requests", "--tap-tensors l_out --tap-request-sample 1/2", world{},
			"--tap-request-sample | --tap-requests"},
		{"sample of nothing", "--tap-requests --tap-request-sample 1/2", world{},
			"--tap-request-sample | --tap-tensor"},
		{"sample in object storage", "--tap-requests --tap-tensors l_out --tap-request-sample 1/2 --tap-out s3://b/c",
			world{}, "--tap-request-sample | --tap-out s3://b/c"},
		{"host collector", "--tap-host blok", world{},
			`--tap-host | unknown | "blok" | block, system, waits, prof, all`},
		{"collector of samples", "--tap-samples perv", world{},
			`--tap-samples | unknown | "perv" | perf, faults, pages`},
		{"collector of samples twice", "--tap-samples perf:faults,faults", world{}, `--tap-samples | "faults" | twice`},
		{"ring of samples", "--tap-samples faults --tap-samples-ring 3M", world{},
			`--tap-samples-ring | "3M" | 8K | 1G | 1M`},
		{"period of samples", "--tap-samples perf --tap-samples-period x", world{},
			`--tap-samples-period | "x" | 10000`},
		{"period of no collector", "--tap-samples faults,pages --tap-samples-period 5000", world{},
			"--tap-samples-period | --tap-samples"},
		{"interval of nothing", "--tap-regions --tap-process-interval 2s", world{},
			"--tap-process-interval | --tap-ledger | --tap-samples"},
		{"process interval", "--tap-samples faults --tap-process-interval 2ms", world{},
			`--tap-process-interval | "2ms" | 50ms | 200ms | 1s | 5s`},
		{"samples without regions", "--tap-samples faults --tap-regions=off", world{}, "--tap-regions | --tap-samples"},
		{"samples with checkpoints", "--tap-preset balanced --tap-samples faults --tap-checkpoint-every 8", world{},
			"--tap-samples | checkpoints | --tap-samples | checkpoints"},
		{"host interval", "--tap-host all --tap-host-interval 1ms", world{},
			`--tap-host-interval | "1ms" | 50ms | 200ms | 1s | 5s`},
		{"modifier of another recorder", "--tap-kv --tap-codec zstd", world{},
			"--tap-codec | --tap-preset | --tap-purpose | --tap-granularity | --tap-layer | --tap-tensor | " +
				"--tap-attention"},
		{"regions with checkpoints", "--tap-preset balanced --tap-regions --tap-checkpoint-every 8", world{},
			"--tap-regions | checkpoints | --tap-regions | checkpoints"},
		{"events with kept states", "--tap-preset balanced --tap-resource-level MINIMAL --tap-checkpoint-every 8 " +
			"--tap-checkpoint-state", world{}, "--tap-checkpoint-state | --tap-resource-level"},
		{"blocks with kept states", "--tap-preset balanced --tap-kv --tap-checkpoint-every 8 --tap-checkpoint-state",
			world{}, "--tap-checkpoint-state | --tap-kv"},
		{"events elsewhere with checkpoints",
			"--tap-preset balanced --tap-resource-level MINIMAL --tap-resource-path a --tap-checkpoint-every 8",
			world{}, "--tap-resource-path | twice | checkpoints"},
		{"no value at the end", "--tap-layers", world{}, "--tap-layers | value | --tap-layers"},
		{"a flag in the value's place", "--tap-out -m x", world{}, `--tap-out | "-m" | --tap-out`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := resolve(c.w, strings.Fields(c.line)...)
			if !namesAll(err, c.want) {
				t.Errorf("%v\nmust be one line that names %s, in this order", err, c.want)
			}
		})
	}
}

func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"empty", "", "f | empty | tap:"},
		{"comment only", "# nothing\n", "f | empty | tap:"},
		{"other top key", "tap:\n  preset: max\nrun:\n  n: 3\n", `f:3:1 | unknown | "run" | tap:`},
		{"settings at the top", "preset: max\n", `f:1:1 | unknown | "preset" | tap:`},
		{"misspelt", "tap:\n  sampling_rat: 0.5\n", `f:2:3 | unknown | "sampling_rat" | sampling_rate`},
		{"dash", "tap:\n  sampling-rate: 0.5\n", `f:2:3 | unknown | "sampling-rate" | sampling_rate`},
		{"unlike any", "tap:\n  zzzzzzzz: 1\n", `f:2:3 | unknown | "zzzzzzzz" | preset | granularity | codec | sink`},
		{"config in the file", "tap:\n  config: g\n",
			`f:2:3 | unknown | "config" | preset | granularity | codec | sink`},
		{"no value", "tap:\n  codec:\n", "f:2:3 | codec | no value"},
		{"mapping as value", "tap:\n  codec:\n    name: lz4\n", "f:3:9 | codec"},
		{"list in list", "tap:\n  tensors: [[a]]\n", "f:2:13 | tensors"},
		{"alias", "tap:\n  out: &a x\n  tensors: *a\n", "f:2:8 | out"},
		{"tap is a list", "tap:\n  - preset\n", "f:2:3 | tap:"},
		{"top is a list", "- tap\n", "f:1:1 | tap:"},
		{"twice", "tap:\n  codec: lz4\n  codec: zstd\n", `f:3:3 | YAML | "codec"`},
		{"two documents", "tap: {preset: max}\n---\ntap: {preset: max}\n", "f:2:1 | document"},
		{"merge key", "tap:\n  <<: {codec: lz4}\n", "f:2:3 | merge"},
		{"broken", "tap: {preset: max\n", "f:1:6 | YAML"},
		{"binary", "\x00\x01\x02", "f:1:1 | tap:"},
		{"invalid UTF-8", "tap:\n  out: x\xffy\n", "f:2:9 | 0xff | UTF-8"},
		{"too large", strings.Repeat("#", maxFileSize+1), "f | larger | 1M | YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := resolve(world{files: map[string]string{"f": c.yaml}}, "--tap-config=f")
			if !namesAll(err, c.want) {
				t.Errorf("%v\nmust be one line that names %s, in this order", err, c.want)
			}
		})
	}
}
