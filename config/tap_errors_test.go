package config

import (
	"strings"
	"testing"
)

// TestErrors holds every message that a user can meet: one line, cause and remedy.
func TestErrors(t *testing.T) {
	const codecRemedy = `use none, lz4, zstd, q, q-fse, zstd-shuffle`
	cases := []struct {
		name string
		line string // split at blanks
		w    world
		want string
	}{
		{"modifier alone", "--tap-codec lz4", world{},
			"--tap-codec records nothing without a recorder: add one of --tap-preset, --tap-purpose, --tap-granularity, --tap-layer, " +
				"--tap-tensor, --tap-attention, --tap-resource-level, --tap-kv, --tap-regions, --tap-ledger, --tap-samples, --tap-host"},
		{"a folder alone", "--tap-out d", world{}, "--tap-out records nothing without a recorder: add one of --tap-preset, "},
		{"two modifiers alone", "--tap-tokens last --tap-overflow drop", world{env: map[string]string{"LLAMATAP_SEED": "1"}},
			"LLAMATAP_SEED, --tap-tokens, --tap-overflow record nothing without a recorder: add one of "},
		{"config that sets a modifier only", "--tap-config f", world{files: map[string]string{"f": "tap: {dtype: f32}"}},
			"f:1:14, --tap-config record nothing without a recorder: add one of "},
		{"unknown granularity", "--tap-granularity half", world{},
			`--tap-granularity: unknown granularity "half": use one of [full_tensor sampled_slices attention_only mlp_only]`},
		{"unknown preset", "--tap-preset turbo", world{},
			`--tap-preset: unknown preset "turbo": use one of fast_capture, balanced, max_compression, max, attention_analysis, mlp_analysis`},
		{"unknown purpose", "--tap-purpose fun", world{},
			`--tap-purpose: unknown purpose "fun": use one of interpretability, debugging, performance_analysis, full_capture`},
		{"unknown codec", "--tap-layers 1 --tap-codec gzip", world{}, `--tap-codec: unknown codec "gzip": ` + codecRemedy},
		{"unknown dtype", "--tap-layers 1 --tap-dtype f64", world{}, `--tap-dtype: unknown dtype "f64": use f16, f32, bf16`},
		{"unknown action", "--tap-layers 1 --tap-on-failure die", world{}, `--tap-on-failure: unknown action on failure "die": use continue, stop`},
		{"segment", "--tap-layers 1 --tap-segment 1x", world{}, `--tap-segment: size "1x": write a number and a unit such as 256M, 1.5G, 512KiB or 24GB`},
		{"segment in time", "--tap-layers 1 --tap-segment 10ms", world{},
			`--tap-segment: segment "10ms": write a time of at least a second such as 90s, 30m or 1h, or a size such as 512M or 1G`},
		{"no interval", "--tap-layers 1 --tap-checkpoint-every 0", world{}, `--tap-checkpoint-every: checkpoint interval "0": write a number of tokens above 0`},
		{"a state alone", "--tap-layers 1 --tap-checkpoint-state", world{},
			`--tap-checkpoint-state is about checkpoints, and there are none: add --tap-checkpoint-every N`},
		{"a path alone", "--tap-layers 1 --tap-checkpoint-path a", world{},
			`--tap-checkpoint-path names a file for checkpoints, and there are none: add --tap-checkpoint-every N`},
		{"checkpoints of drops", "--tap-layers 1 --tap-checkpoint-every 9 --tap-overflow drop", world{},
			`--tap-checkpoint-every: a run that may drop tensors cannot be resumed as it was: use --tap-overflow block`},
		{"checkpoints of segments", "--tap-layers 1 --tap-checkpoint-every 9 --tap-segment 1G", world{},
			`--tap-checkpoint-every: a run in segments is not resumed, its sealed segments are results: leave out --tap-segment, or the checkpoints`},
		{"sink", "--tap-layers 1 --tap-sink tcp:1", world{}, `--tap-sink: sink "tcp:1": write unix:PATH, fd:N or -`},
		{"sink of the program", "--tap-layers 1 --tap-sink fd:2", world{},
			`--tap-sink: sink "fd:2": descriptors 0 to 2 are the program's: open another one, such as fd:3 with 3>file`},
		{"sync policy", "--tap-layers 1 --tap-sync often", world{}, `--tap-sync: unknown sync policy "often": use none, interval, token`},
		{"sync time", "--tap-layers 1 --tap-sync interval:1us", world{}, `--tap-sync: sync "interval:1us": write a time from 10ms to 1h0m0s, such as interval:200ms`},
		{"sync token time", "--tap-layers 1 --tap-sync token:1s", world{}, `--tap-sync: sync "token:1s": only interval takes a time; write token`},
		{"small segment", "--tap-layers 1 --tap-segment 10K", world{}, `--tap-segment: segment "10K" is too small: give at least 64K`},
		{"disk action", "--tap-layers 1 --tap-max-disk 1G:drop", world{}, `--tap-max-disk: unknown action at the bound "drop": use stop, rotate`},
		{"small disk", "--tap-layers 1 --tap-max-disk 1M", world{}, `--tap-max-disk: disk "1M" is too little for a run: give at least 4M`},
		{"rotation within one segment", "--tap-layers 1 --tap-max-disk 1G:rotate --tap-segment 600M", world{},
			`--tap-segment asks for segments of 600M, and --tap-max-disk for rotation within 1G: give segments of at most half of it, or :stop`},
		{"redaction", "--tap-layers 1 --tap-redact ids", world{}, `--tap-redact: unknown kind of redaction "ids": use none, text`},
		{"unknown overflow", "--tap-layers 1 --tap-overflow spill", world{}, `--tap-overflow: unknown overflow policy "spill": use block, drop`},
		{"unknown attention mode", "--tap-attention=all", world{}, `--tap-attention: unknown attention mode "all": use keep, exact or off`},
		{"layers", "--tap-layers 3-1", world{},
			`--tap-layers: layer list "3-1": "3-1" is neither a layer nor a range such as 0-3 (layers go from 0 to 1023)`},
		{"tokens", "--tap-layers 1 --tap-tokens some", world{}, `--tap-tokens: token rule "some": use all, last, A:B or every:N`},
		{"glob", "--tap-tensors l_[out", world{}, `--tap-tensors: tensor glob "l_[out": a [ is not closed or a \ ends it; use *, ? and [a-z]`},
		{"empty glob", "--tap-tensors l_out,,x", world{},
			`--tap-tensors: tensor list "l_out,,x" has an empty name: write GLOB[,GLOB] such as l_out,ffn_*`},
		{"rate of zero", "--tap-granularity sampled_slices --tap-sampling-rate 0", world{},
			`--tap-sampling-rate: rate "0": write a share above 0 and at most 1, such as 0.1`},
		{"rate above one", "--tap-granularity sampled_slices --tap-sampling-rate 1.01", world{}, `--tap-sampling-rate: rate "1.01": write a share`},
		{"rate that is no number", "--tap-granularity sampled_slices --tap-sampling-rate NaN", world{}, `--tap-sampling-rate: rate "NaN": write a share`},
		{"rate without sampling", "--tap-preset balanced --tap-sampling-rate 0.5", world{},
			"--tap-sampling-rate works on sampled_slices only, and the granularity is full_tensor (preset balanced): " +
				"add --tap-granularity sampled_slices, or drop it"},
		{"seed without sampling", "--tap-layers 1 --tap-seed 3", world{},
			"--tap-seed works on sampled_slices only, and the granularity is full_tensor (default): add --tap-granularity sampled_slices, or drop it"},
		{"seed", "--tap-granularity sampled_slices --tap-seed=-1", world{},
			`--tap-seed: seed "-1": write a whole number from 0 to 18446744073709551615`},
		{"error of a lossless codec", "--tap-layers 1 --tap-error 0.01", world{},
			"--tap-error works with the codecs q and q-fse only, and the codec is lz4 (default): add --tap-codec q, or drop it"},
		{"error", "--tap-layers 1 --tap-codec q --tap-error 2", world{}, `--tap-error: error "2": give a number from 1e-6 to 0.25, such as 0.001`},
		{"element type of a codec of its own", "--tap-layers 1 --tap-codec q --tap-dtype f16", world{},
			"--tap-dtype and codec q (--tap-codec) contradict each other, because that codec decides how F32 is stored: add --tap-codec lz4, or drop --tap-dtype"},
		{"attention on the MLP", "--tap-attention --tap-granularity mlp_only", world{},
			"--tap-attention and mlp_only (--tap-granularity) contradict each other: drop one, or take --tap-granularity full_tensor"},
		{"attention on an MLP preset", "--tap-attention --tap-preset mlp_analysis", world{},
			"--tap-attention and mlp_only (preset mlp_analysis) contradict each other: drop one, or take --tap-granularity full_tensor"},
		{"attention of samples", "--tap-attention --tap-granularity sampled_slices", world{},
			"--tap-attention needs whole rows of Q and K, and sampled_slices (--tap-granularity) keeps a share: drop one"},
		{"preset and purpose", "--tap-preset max --tap-purpose debugging", world{},
			"--tap-preset and --tap-purpose contradict each other, for a purpose picks the preset: drop one"},
		{"memory above the ceiling", "--tap-preset max_compression --tap-memory 20GB", world{},
			"--tap-memory asks for 20GB, and the ceiling of preset max_compression is 16GB: ask for less, or take a preset with a higher one " +
				"(fast_capture: 32GB, balanced: 24GB, max: 64GB)"},
		{"memory above every ceiling", "--tap-preset max --tap-memory 100GB", world{},
			"--tap-memory asks for 100GB, and the ceiling of preset max is 64GB: ask for less, or take a preset with a higher one (none has)"},
		{"too little memory", "--tap-layers 1 --tap-memory 10K", world{},
			`--tap-memory: memory "10K" is too little to capture with: give at least 8M`},
		{"no size", "--tap-layers 1 --tap-memory lots", world{},
			`--tap-memory: size "lots": write a number and a unit such as 256M, 1.5G, 512KiB or 24GB`},
		{"workers", "--tap-layers 1 --tap-workers 9999", world{},
			`--tap-workers: workers "9999": write a whole number from 1 to 256, or 0 for the machine's own choice`},
		{"throughput", "--tap-layers 1 --tap-throughput fast", world{},
			`--tap-throughput: throughput "fast": write a number of GB/s above 0, such as 2.0`},
		{"empty value", "--tap-out=", world{}, "--tap-out: the value is empty: give DIR"},
		{"invalid UTF-8", "--tap-tensors=l_\xff", world{}, `--tap-tensors "l_\xff": the value is not valid UTF-8: convert it to UTF-8 first, with iconv for example`},
		{"environment", "--tap-layers 1", world{env: map[string]string{"LLAMATAP_CODEC": "gzip"}},
			`LLAMATAP_CODEC: unknown codec "gzip": ` + codecRemedy},
		{"an overridden value is checked too", "--tap-layers 1 --tap-codec lz4", world{env: map[string]string{"LLAMATAP_CODEC": "gzip"}},
			`LLAMATAP_CODEC: unknown codec "gzip": ` + codecRemedy},
		{"file", "--tap-config f", world{files: map[string]string{"f": "tap:\n  preset: max\n  codec: gzip\n"}},
			`f:3:10: unknown codec "gzip": ` + codecRemedy},
		{"unknown flag", "--tap-granularty mlp_only", world{}, "unknown flag --tap-granularty: did you mean --tap-granularity?"},
		{"unknown flag with value", "--tap-layr=3", world{}, "unknown flag --tap-layr: did you mean --tap-layer?"},
		{"unknown flag far from all", "--tap-quux", world{}, "unknown flag --tap-quux: 'llamatap help recording' lists the tap's flags"},
		{"no name", "--tap-", world{}, "unknown flag --tap-: 'llamatap help recording' lists the tap's flags"},
		{"resource level", "--tap-resource-level loud", world{}, `--tap-resource-level: unknown resource level "LOUD": use MINIMAL, DETAILED, VERBOSE`},
		{"resource level of the other system", "--tap-kv", world{env: map[string]string{"LLAMA_RESOURCE_LOG_LEVEL": "all"}},
			`LLAMA_RESOURCE_LOG_LEVEL: unknown resource level "ALL": use MINIMAL, DETAILED, VERBOSE`},
		{"block of cells", "--tap-kv --tap-kv-block 0", world{}, `--tap-kv-block: kv block "0": write a number of cells from 1 to 1048576`},
		{"ledger", "--tap-ledger=sums", world{}, `--tap-ledger: unknown ledger "sums": use rows, windows, off`},
		{"ledger window", "--tap-ledger windows --tap-ledger-window 1", world{}, `--tap-ledger-window: ledger window "1": write a time from 1ms to 1h0m0s, such as 100ms`},
		{"ledger without regions", "--tap-ledger --tap-regions=off", world{},
			"--tap-regions leaves out the map of memory, whose regions the rows of --tap-ledger name: drop one of the two"},
		{"ledger with checkpoints", "--tap-preset balanced --tap-ledger --tap-checkpoint-every 8", world{},
			"--tap-ledger is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-ledger, or the checkpoints"},
		{"host collector", "--tap-host blok", world{}, `--tap-host: unknown host collector "blok": use block, system, waits, prof, all`},
		{"collector of samples", "--tap-samples perv", world{}, `--tap-samples: unknown collector of samples "perv": use perf, faults, pages`},
		{"collector of samples twice", "--tap-samples perf:faults,faults", world{}, `--tap-samples: collector of samples "faults" is named twice: name it once`},
		{"ring of samples", "--tap-samples faults --tap-samples-ring 3M", world{},
			`--tap-samples-ring: samples ring "3M": give a power of two from 8K to 1G, such as 1M, or 0`},
		{"period of samples", "--tap-samples perf --tap-samples-period x", world{},
			`--tap-samples-period: samples period "x": write events per sample, such as 10000, or 0 for what is usual`},
		{"period of no collector", "--tap-samples faults,pages --tap-samples-period 5000", world{},
			"--tap-samples-period is the period of perf, and --tap-samples does not name it: write --tap-samples perf:faults, or drop it"},
		{"interval of nothing", "--tap-regions --tap-process-interval 2s", world{},
			"--tap-process-interval is the interval of process.jsonl, and nothing writes it: add --tap-ledger or --tap-samples, or drop it"},
		{"process interval", "--tap-samples faults --tap-process-interval 2ms", world{},
			`--tap-process-interval: process interval "2ms": write a time from 50ms on, such as 200ms, 1s or 5s`},
		{"samples without regions", "--tap-samples faults --tap-regions=off", world{},
			"--tap-regions leaves out the map of memory, whose regions the rows of --tap-samples name: drop one of the two"},
		{"samples with checkpoints", "--tap-preset balanced --tap-samples faults --tap-checkpoint-every 8", world{},
			"--tap-samples is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-samples, or the checkpoints"},
		{"host interval", "--tap-host all --tap-host-interval 1ms", world{},
			`--tap-host-interval: host interval "1ms": write a time from 50ms on, such as 200ms, 1s or 5s`},
		{"modifier of another recorder", "--tap-kv --tap-codec zstd", world{},
			"--tap-codec changes how tensors are recorded, and nothing of it is: add one of --tap-preset, --tap-purpose, --tap-granularity, --tap-layer, --tap-tensor, --tap-attention, or drop it"},
		{"regions with checkpoints", "--tap-preset balanced --tap-regions --tap-checkpoint-every 8", world{},
			"--tap-regions is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-regions, or the checkpoints"},
		{"events with kept states", "--tap-preset balanced --tap-resource-level MINIMAL --tap-checkpoint-every 8 --tap-checkpoint-state", world{},
			"--tap-checkpoint-state: --tap-resource-level needs the whole run, and a run that is resumed from a kept state does not recompute its beginning: drop one of the two"},
		{"blocks with kept states", "--tap-preset balanced --tap-kv --tap-checkpoint-every 8 --tap-checkpoint-state", world{},
			"--tap-checkpoint-state: --tap-kv needs the whole run, and a run that is resumed from a kept state does not recompute its beginning: drop one of the two"},
		{"events elsewhere with checkpoints", "--tap-preset balanced --tap-resource-level MINIMAL --tap-resource-path a --tap-checkpoint-every 8", world{},
			"--tap-resource-path would get the events of a resumed run twice: read them in the run directory (resource.jsonl), or drop the checkpoints"},
		{"no value at the end", "--tap-layers", world{}, "--tap-layers needs a value: give --tap-layers LIST"},
		{"a flag in the value's place", "--tap-out -m x", world{}, `--tap-out needs a value, and "-m" looks like another flag: write --tap-out=DIR`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := resolve(c.w, strings.Fields(c.line)...)
			if err == nil {
				t.Fatalf("no error; want %q", c.want)
			}
			whole := !strings.HasSuffix(c.want, " ") && !strings.HasSuffix(c.want, "share")
			if got := err.Error(); !strings.HasPrefix(got, c.want) || whole && got != c.want || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFileErrors(t *testing.T) {
	const all = "preset, purpose, granularity, layers, tensors, attention, resource_level, kv, regions, resource_path, resource_rate, resource_rotate, legacy_estimates, kv_block, ledger, ledger_window, samples, samples_period, samples_ring, process_interval, host, host_interval, host_details, sampling_rate, seed, tokens, start, codec, error, error_metric, dtype, memory, overflow, " +
		"throughput, workers, out, on_failure, cold, segment, max_disk, min_free, preallocate, redact, sync, checkpoint_every, checkpoint_path, checkpoint_state, resume, sink"
	for _, c := range []struct{ name, yaml, want string }{
		{"empty", "", "f is empty: write settings below the key tap:, such as tap: {preset: balanced}"},
		{"comment only", "# nothing\n", "f is empty: write settings below the key tap:, such as tap: {preset: balanced}"},
		{"other top key", "tap:\n  preset: max\nrun:\n  n: 3\n", `f:3:1: unknown key "run": settings belong below the key tap:`},
		{"settings at the top", "preset: max\n", `f:1:1: unknown key "preset": settings belong below the key tap:`},
		{"misspelt", "tap:\n  sampling_rat: 0.5\n", `f:2:3: unknown setting "sampling_rat": did you mean sampling_rate?`},
		{"dash", "tap:\n  sampling-rate: 0.5\n", `f:2:3: unknown setting "sampling-rate": did you mean sampling_rate?`},
		{"unlike any", "tap:\n  zzzzzzzz: 1\n", `f:2:3: unknown setting "zzzzzzzz": use one of ` + all},
		{"config in the file", "tap:\n  config: g\n", `f:2:3: unknown setting "config": use one of ` + all},
		{"no value", "tap:\n  codec:\n", "f:2:3: codec has no value: write one after the colon, or delete the line"},
		{"mapping as value", "tap:\n  codec:\n    name: lz4\n", "f:3:9: codec: write one plain value or a list of them"},
		{"list in list", "tap:\n  tensors: [[a]]\n", "f:2:13: tensors: write one plain value or a list of them"},
		{"alias", "tap:\n  out: &a x\n  tensors: *a\n", "f:2:8: out: write one plain value or a list of them"},
		{"tap is a list", "tap:\n  - preset\n", "f:2:3: expected settings below the key tap:, such as tap: {preset: balanced}"},
		{"top is a list", "- tap\n", "f:1:1: expected settings below the key tap:, such as tap: {preset: balanced}"},
		{"twice", "tap:\n  codec: lz4\n  codec: zstd\n", "f:3:3: not valid YAML: mapping key \"codec\" already defined at [2:3]"},
		{"two documents", "tap: {preset: max}\n---\ntap: {preset: max}\n", "f:2:1: a second document begins here: put everything into one"},
		{"merge key", "tap:\n  <<: {codec: lz4}\n", "f:2:3: merge keys are not read: write the settings out"},
		{"broken", "tap: {preset: max\n", "f:1:6: not valid YAML: could not find flow mapping end token '}'"},
		{"binary", "\x00\x01\x02", "f:1:1: expected settings below the key tap:, such as tap: {preset: balanced}"},
		{"invalid UTF-8", "tap:\n  out: x\xffy\n", "f:2:9: byte 0xff is not valid UTF-8: write the file in UTF-8"},
		{"too large", strings.Repeat("#", maxFileSize+1), "f is larger than 1M: give a YAML file with settings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := resolve(world{files: map[string]string{"f": c.yaml}}, "--tap-config=f")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
