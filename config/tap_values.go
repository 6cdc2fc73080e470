package config

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/object"
)

// minMemory is the least that --tap-memory accepts: half of it is shared with the model's process, whose pool has
// too few slots with less.
const minMemory = 8 * MiB

// maxWorkers bounds --tap-workers.
const maxWorkers = 256

var (
	codecs  = []string{"none", "lz4", "zstd", "q", "q-fse", "zstd-shuffle"}
	dtypes  = []string{"f16", "f32", "bf16"}
	metrics = []string{"maxabs", "nrmse"}
)

// setText parses one value of the option into t.
func (o *option) setText(t *Tap, value string) error {
	switch {
	case !utf8.ValidString(value):
		return fmt.Errorf("%q is not valid UTF-8: write it in UTF-8", value)
	case value == "":
		return fmt.Errorf("the value is empty: give %s", o.form)
	}
	return o.set(t, value)
}

func setPreset(t *Tap, s string) error {
	p, err := parsePreset(s)
	if err == nil {
		t.Preset = p.Name
	}
	return err
}

func setCodec(t *Tap, s string) (err error) {
	if s == "q-huff" { // its name once
		s = "q-fse"
	}
	t.Codec, err = oneOf("codec", s, codecs)
	return err
}

func setLayers(t *Tap, s string) (err error) {
	t.Layers = ggmlhooks.LayerSet{}
	if s != "all" {
		t.Layers, err = ggmlhooks.ParseLayerSet(s)
	}
	return err
}

func setTensors(t *Tap, s string) error {
	t.Tensors = nil
	if s == "all" {
		return nil
	}
	for _, glob := range strings.Split(s, ",") {
		glob = strings.TrimSpace(glob)
		if glob == "" {
			return fmt.Errorf("tensor list %q has an empty name: write GLOB[,GLOB] such as l_out,ffn_*", s)
		}
		if _, err := path.Match(glob, ""); err != nil {
			return fmt.Errorf("tensor glob %q: a [ is not closed or a \\ ends it; use *, ? and [a-z]", glob)
		}
		t.Tensors = append(t.Tensors, glob)
	}
	return nil
}

func setPoints(t *Tap, s string) error {
	t.Points = nil
	if s == "none" {
		return nil
	}
	names := strings.Split(s, ",")
	if s == "all" {
		names = ggmlhooks.PointNames()
	}
	for _, name := range names {
		ref, err := ParsePoint(name)
		if err != nil {
			return err
		}
		if !slices.Contains(t.Points, ref) {
			t.Points = append(t.Points, ref)
		}
	}
	return nil
}

// ParsePoint reads the name of a point, and refuses an unknown one with the nearest that there is.
func ParsePoint(name string) (ggmlhooks.PointRef, error) {
	name = strings.TrimSpace(name)
	ref, ok := ggmlhooks.ParsePoint(name)
	if ok {
		return ref, nil
	}
	remedy := "docs/POINTS.md lists them, such as resid_post, mlp_act and blocks.3.hook_resid_post"
	if near := Nearest(name, ggmlhooks.PointNames()); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	return ref, fmt.Errorf("unknown point %q: %s", name, remedy)
}

// pointList writes points as setPoints reads them.
func pointList(points []ggmlhooks.PointRef) string {
	if len(points) == 0 {
		return "none"
	}
	names := make([]string, len(points))
	for i, p := range points {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

// setAttention also reads true and false, which is what a FlagSet passes for a flag that stands alone and what YAML
// users write.
func setAttention(t *Tap, s string) error {
	modes := map[string]ggmlhooks.AttentionMode{
		"keep": ggmlhooks.AttentionKeep, "true": ggmlhooks.AttentionKeep,
		"exact": ggmlhooks.AttentionExact,
		"off":   ggmlhooks.AttentionNone, "false": ggmlhooks.AttentionNone,
	}
	mode, known := modes[s]
	if !known {
		return fmt.Errorf("unknown attention mode %q: use keep, exact or off", s)
	}
	t.Attention = mode
	return nil
}

func setOverflow(t *Tap, s string) error {
	policy, err := oneOf("overflow policy", s, []string{string(OverflowBlock), string(OverflowDrop)})
	t.Overflow = Overflow(policy)
	return err
}

func setOut(t *Tap, s string) error {
	if t.Out, t.Store = s, ""; object.Is(s) {
		t.Out, t.Store = DefaultOut, s
	}
	return nil
}

func setOnFailure(t *Tap, s string) error {
	then, err := oneOf("action on failure", s, []string{string(FailureContinue), string(FailureStop)})
	t.OnFailure = OnFailure(then)
	return err
}

func oneOf(what, s string, words []string) (string, error) {
	if slices.Contains(words, s) {
		return s, nil
	}
	return "", fmt.Errorf("unknown %s %q: use %s", what, s, strings.Join(words, ", "))
}

func parseRate(s string) (float64, error) {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate > 0 && rate <= 1) {
		return 0, fmt.Errorf("rate %q: write a share above 0 and at most 1, such as 0.1", s)
	}
	return rate, nil
}

func parseThroughput(s string) (float64, error) {
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || !(rate > 0 && rate <= 1e6) {
		return 0, fmt.Errorf("throughput %q: write a number of GB/s above 0, such as 2.0", s)
	}
	return rate, nil
}

func parseSeed(s string) (uint64, error) {
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seed %q: write a whole number from 0 to 18446744073709551615", s)
	}
	return seed, nil
}

func parseWorkers(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxWorkers {
		return 0, fmt.Errorf("workers %q: write a whole number from 1 to %d, or 0 for the machine's own choice", s,
			maxWorkers)
	}
	return n, nil
}

func parseMemory(s string) (Bytes, error) {
	size, err := ParseBytes(s)
	if err == nil && size < minMemory {
		err = fmt.Errorf("memory %q is too little to capture with: give at least %v", s, minMemory)
	}
	return size, err
}

func orAll(s string) string {
	if s == "" {
		return "all"
	}
	return s
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

// text and number turn an absent value into nil, so that Echo leaves it out.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func number(f float64) any {
	if f == 0 {
		return nil
	}
	return f
}

// parseError reads the bound of an error.
func parseError(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 1e-6 && v <= 0.25) {
		return 0, fmt.Errorf("error %q: give a number from 1e-6 to 0.25, such as 0.001", s)
	}
	return v, nil
}

func setDeviceMemory(t *Tap, s string) error {
	size, err := ParseBytes(s)
	if err != nil {
		return err
	}
	t.DeviceMemory = &size
	return nil
}
