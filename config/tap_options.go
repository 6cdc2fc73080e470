package config

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
)

// envPrefix begins the environment variables of settings.
const envPrefix = "LLAMATAP_"

// TurnsVariable is the environment variable with which llamatap bench records in alternation of so many tokens, see
// collect.Options. It is not a setting of a run.
const TurnsVariable = envPrefix + "BENCH_TURNS"

// DefaultOut is the folder in which run directories are made unless --tap-out says otherwise.
const DefaultOut = "./llamatap-runs"

// role says what an option does to the question whether something is recorded.
type role uint8

const (
	roleRecorder role = iota // giving it starts the recorder
	roleModifier             // it changes a recorder, and means nothing without one
	roleRun                  // it belongs to the whole run
)

// option is one row of the table of settings, in every spelling.
type option struct {
	name     string                 // sampling-rate: --tap-sampling-rate, LLAMATAP_SAMPLING_RATE, key sampling_rate
	spelt    string                 // how the flag is spelt where it is not the name, which is deprecated then
	form     string                 // the value's form in help
	bare     string                 // the value that the flag means when it stands alone; "" when it must have one
	follows  func(next string) bool // with bare: whether the argument after the flag is its value
	role     role
	alias    string   // another environment variable that means the same; "" when there is none
	recorder Recorder // which one it starts or modifies; "": all
	modifies Recorder // in place of role and recorder: the one that it modifies
	byDef    string   // the default, as a user would write it; "" when there is none
	help     string
	field
	onOff func(*Tap) *bool // of a switch, in place of form, bare, follows and field
}

// complete fills in what follows from modifies, and from the field of a switch.
func (o *option) complete() {
	if o.modifies != "" {
		o.role, o.recorder = roleModifier, o.modifies
	}
	if o.onOff == nil {
		return
	}
	o.form, o.bare, o.follows = "[=on|off]", "on", func(next string) bool { return next == "on" || next == "off" }
	o.set = func(t *Tap, s string) error {
		word, err := oneOf(o.name, s, []string{"on", "off", "true", "false", "1", "0"})
		*o.onOff(t) = word == "on" || word == "true" || word == "1"
		return err
	}
	o.get = func(t *Tap) any {
		if *o.onOff(t) {
			return "on"
		}
		return nil
	}
}

func (o *option) flag() string { return "--tap-" + cmp.Or(o.spelt, o.name) }

// cli is the option as a flag.
func (o *option) cli() *cli.Flag {
	flag := &cli.Flag{Names: []string{o.flag()}, Value: o.form, Bare: o.bare, Follows: o.follows, Default: o.byDef,
		Help: o.help}
	if o.spelt != "" {
		flag.Old = []string{"--tap-" + o.name}
	}
	return flag
}

// envs are the environment variables of the option: the first is named as its flag is, the others are former names
// and aliases.
func (o *option) envs() []string {
	of := func(name string) string { return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	all := []string{of(cmp.Or(o.spelt, o.name))}
	if o.spelt != "" {
		all = append(all, of(o.name))
	}
	if o.alias != "" {
		all = append(all, o.alias)
	}
	return all
}

func (o *option) key() string { return strings.ReplaceAll(o.name, "-", "_") }

// TapVariables lists the environment variables that the tap's settings can be given by.
func TapVariables() (names []string) {
	for i := range tapOptions {
		names = append(names, tapOptions[i].envs()...)
	}
	return names
}

// tapOptions is the table, in the order of help.
var tapOptions = func() []option {
	options := slices.Concat(
		recorderOptions(), machineOptions(), eventOptions(), ledgerOptions(), sampleOptions(), hostOptions(),
		steerOptions(),
		modifierOptions(), runOptions(),
		diskOptions(), syncOptions(), checkpointOptions(), sinkOptions(), datasetOptions(),
		[]option{{name: "config", form: "FILE", role: roleRun,
			help:  "YAML file with the same settings below the key tap:, such as sampling_rate: 0.1",
			field: plain(func(t *Tap) *string { return &t.ConfigFile })}})
	for i := range options {
		options[i].complete()
	}
	return options
}()

func recorderOptions() []option {
	return []option{
		{name: "preset", form: "NAME", recorder: Activations,
			help: "capture with a named set of settings: " + strings.Join(presetNames(), ", "),
			field: parsed(func(t *Tap) *string { return &t.Preset }, func(s string) (string, error) {
				p, err := parsePreset(s)
				return p.Name, err
			})},
		{name: "purpose", form: "NAME", recorder: Activations,
			help: "capture with the preset that suits this purpose and the model's architecture: " +
				strings.Join(purposes, ", "),
			field: parsed(func(t *Tap) *Purpose { return &t.Purpose }, parsePurpose)},
		{name: "granularity", form: "NAME", recorder: Activations, byDef: "full_tensor",
			help:  "how much of the graph: full_tensor, sampled_slices, attention_only, mlp_only",
			field: parsed(func(t *Tap) *ggmlhooks.Granularity { return &t.Granularity }, ggmlhooks.ParseGranularity)},
		{name: "layers", spelt: "layer", form: "LIST", recorder: Activations, byDef: "all",
			help: "only these layers, such as 0-3,7",
			field: written(func(t *Tap) *ggmlhooks.LayerSet { return &t.Layers }, parseLayers,
				ggmlhooks.LayerSet.String)},
		{name: "tensors", spelt: "tensor", form: "GLOB[,GLOB]", recorder: Activations, byDef: "all",
			help: "only tensors with these names, with or without the layer suffix, such as l_out,ffn_*; a name as " +
				"it is printed, such as Qcur-0#2, means that one alone (Qcur-0#1: the first of its name); all is " +
				"every computed one",
			field: written(func(t *Tap) *[]string { return &t.Tensors }, parseTensors, joined)},
		{name: "points", spelt: "point", form: "NAME[,NAME]", recorder: Activations, byDef: "none",
			help: "the tensors at named points of the model, such as resid_post,mlp_act, resid_post.3 or " +
				"blocks.3.hook_resid_post; all is every point that the model has; docs/POINTS.md lists them",
			field: written(func(t *Tap) *[]ggmlhooks.PointRef { return &t.Points }, parsePoints, listed)},
		{name: "attention", form: "[=keep|exact]", bare: "keep", follows: isAttentionWord, recorder: Activations,
			byDef: "off",
			help: "attention maps: keep (also when it stands alone) leaves flash attention on and stores Q and K " +
				"rows; exact turns it off, which changes the model's numbers; off records none",
			field: written(func(t *Tap) *ggmlhooks.AttentionMode { return &t.Attention }, parseAttention,
				ggmlhooks.AttentionMode.String)},
	}
}

func modifierOptions() []option {
	return []option{
		{name: "sampling-rate", form: "RATE", modifies: Activations, byDef: "0.1",
			help: "with sampled_slices: the share of elements to keep, above 0 and at most 1",
			field: number(func(t *Tap) *float64 { return &t.SamplingRate }, math.SmallestNonzeroFloat64, 1,
				"rate %q: write a share above 0 and at most 1, such as 0.1")},
		{name: "seed", form: "N", modifies: Activations, byDef: "0",
			help: "with sampled_slices: the seed of the choice",
			field: whole(func(t *Tap) *uint64 { return &t.Seed }, 0, math.MaxUint64,
				"seed %q: write a whole number from 0 to 18446744073709551615")},
		{name: "tokens", spelt: "token", form: "RULE", modifies: Activations, byDef: "all",
			help:  "which tokens: all, last (those with output), A:B (from A, before B), every:N",
			field: parsed(func(t *Tap) *ggmlhooks.TokenRule { return &t.Tokens }, ggmlhooks.ParseTokenRule)},
		{name: "start", form: "on|off", modifies: Activations, byDef: "on",
			help:  "off captures nothing until 'llamatap ctl RUNDIR on' or tap asks for it, while the program runs",
			field: either(func(t *Tap) *bool { return &t.StartOff }, "start", "on", "off")},
		{name: "codec", form: "none|lz4|zstd|zstd-shuffle|q|q-fse", modifies: Activations, byDef: "lz4",
			help: "how packets are compressed; zstd-shuffle sorts the bytes of elements first, q stores F32 rows " +
				"within --tap-error, q-fse with an entropy stage",
			field: parsed(func(t *Tap) *string { return &t.Codec }, parseCodec)},
		{name: "error", form: "E", modifies: Activations, byDef: "0.001",
			help: "with the codecs q and q-fse: the error that a row may have, relative to the row, 1e-6 to 0.25",
			field: number(func(t *Tap) *float64 { return &t.Error }, 1e-6, 0.25,
				"error %q: give a number from 1e-6 to 0.25, such as 0.001")},
		{name: "error-metric", form: "maxabs|nrmse", modifies: Activations, byDef: "maxabs",
			help:  "what that error is: the largest one by the largest value, or the root mean square of both",
			field: choice(func(t *Tap) *string { return &t.ErrorMetric }, "error-metric", "maxabs", "nrmse")},
		{name: "dtype", form: "f16|f32|bf16", modifies: Activations, byDef: "f16",
			help:  "what F32 tensors are stored as; values that saturate or vanish are counted",
			field: choice(func(t *Tap) *string { return &t.DType }, "dtype", dtypes...)},
		{name: "memory", form: "SIZE", role: roleModifier, byDef: "256M",
			help:  "most memory that the capture may take, such as 64M, 1.5G, 2GB; a preset sets a ceiling",
			field: parsed(func(t *Tap) *Bytes { return &t.Memory }, parseMemory)},
		{name: "device-memory", form: "SIZE", modifies: Activations,
			help: "most memory, beside the model's, that tensors of one graph may hold until it is computed: the " +
				"graph is cut for the others, which costs time. 0 cuts it for all; without the flag 64M in host " +
				"memory, on a GPU a twentieth of what is free, at most 1G",
			field: parsed(func(t *Tap) **Bytes { return &t.DeviceMemory }, func(s string) (*Bytes, error) {
				size, err := ParseBytes(s)
				return &size, err
			})},
		{name: "overflow", form: "block|drop", role: roleModifier, byDef: "block",
			help: "when that memory is full: let the model wait, or leave tensors out and count them",
			field: choice(func(t *Tap) *Overflow { return &t.Overflow }, "overflow policy", string(OverflowBlock),
				string(OverflowDrop))},
		{name: "throughput", form: "GB/S", modifies: Activations,
			help: "the rate, in GB/s of captured bytes, below which the summary says what held the capture back; a " +
				"preset sets it",
			field: number(func(t *Tap) *float64 { return &t.Throughput }, math.SmallestNonzeroFloat64, 1e6,
				"throughput %q: write a number of GB/s above 0, such as 2.0")},
		{name: "workers", form: "N", modifies: Activations, byDef: "0",
			help: "codec workers, at nice 19; 0 is as many as the machine suggests",
			field: whole(func(t *Tap) *int { return &t.Workers }, 0, maxWorkers,
				"workers %q: write a whole number from 1 to "+strconv.Itoa(maxWorkers)+
					", or 0 for the machine's own choice")},
	}
}

func runOptions() []option {
	return []option{
		{name: "out", form: "DIR|URL", role: roleRun, byDef: DefaultOut,
			help:  "folder of runs, or s3://BUCKET/PREFIX to copy them there; ask for a recorder as well",
			field: field{setOut, func(t *Tap) any { return cmp.Or(t.Store, t.Out) }}},
		{name: "on-failure", form: "continue|stop", role: roleRun, byDef: "continue",
			help: "when the recording fails, because the disk is full or its process was killed: let the program " +
				"continue unrecorded, or end it",
			field: choice(func(t *Tap) *OnFailure { return &t.OnFailure }, "action on failure",
				string(FailureContinue), string(FailureStop))},
		{name: "cold", role: roleRun, byDef: "off",
			help: "let a mapped model be read page by page when it is first touched, without read-ahead, instead of " +
				"when it is loaded: slow, and shows who touches what",
			onOff: func(t *Tap) *bool { return &t.Cold }},
	}
}

// findFlag returns the option of a flag, as it is spelt or was once.
func findFlag(flag string) *option {
	at := slices.IndexFunc(tapOptions, func(o option) bool { return o.flag() == flag || "--tap-"+o.name == flag })
	return &tapOptions[at]
}

// Spelt returns a flag --tap-name=value as it is spelt now, where it is spelt as it once was.
func Spelt(flag string) string {
	name, rest := flag, ""
	if at := strings.IndexByte(flag, '='); at >= 0 {
		name, rest = flag[:at], flag[at:]
	}
	for i := range tapOptions {
		if "--tap-"+tapOptions[i].name == name {
			return tapOptions[i].flag() + rest
		}
	}
	return flag
}

// findOption returns the option of that name, or nil.
func findOption(name string) *option {
	at := slices.IndexFunc(tapOptions, func(o option) bool { return o.name == name })
	if at < 0 {
		return nil
	}
	return &tapOptions[at]
}

// recorderFlags lists the flags that start a recorder; "": any.
func recorderFlags(r Recorder) []string {
	var flags []string
	for i := range tapOptions {
		if tapOptions[i].role == roleRecorder && (r == "" || tapOptions[i].recorder == r) {
			flags = append(flags, tapOptions[i].flag())
		}
	}
	return flags
}
