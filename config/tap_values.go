package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/store/object"
)

// minMemory is the least that --tap-memory accepts: half of it is shared with the model's process, whose pool has
// too few slots with less.
const minMemory = 8 * MiB

// maxWorkers bounds --tap-workers.
const maxWorkers = 256

var (
	codecs = []string{"none", "lz4", "zstd", "q", "q-fse", "zstd-shuffle"}
	dtypes = []string{"f16", "f32", "bf16"}
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

func parseCodec(s string) (string, error) {
	if s == "q-huff" { // its name once
		s = "q-fse"
	}
	return oneOf("codec", s, codecs)
}

func parseLayers(s string) (ggmlhooks.LayerSet, error) {
	if s == "all" {
		return ggmlhooks.LayerSet{}, nil
	}
	return ggmlhooks.ParseLayerSet(s)
}

func parseTensors(s string) (globs []string, err error) {
	if s == "all" {
		return nil, nil
	}
	for _, glob := range strings.Split(s, ",") {
		glob = strings.TrimSpace(glob)
		if glob == "" {
			return nil, fmt.Errorf("tensor list %q has an empty name: write GLOB[,GLOB] such as l_out,ffn_*", s)
		}
		if _, err := path.Match(glob, ""); err != nil {
			return nil, fmt.Errorf("tensor glob %q: a [ is not closed or a \\ ends it; use *, ? and [a-z]", glob)
		}
		globs = append(globs, glob)
	}
	return globs, nil
}

func parsePoints(s string) (points []ggmlhooks.PointRef, err error) {
	if s == "none" {
		return nil, nil
	}
	names := strings.Split(s, ",")
	if s == "all" {
		names = ggmlhooks.PointNames()
	}
	for _, name := range names {
		ref, err := ParsePoint(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(points, ref) {
			points = append(points, ref)
		}
	}
	return points, nil
}

// ParsePoint reads the name of a point, and refuses an unknown one with the nearest that there is.
func ParsePoint(name string) (ggmlhooks.PointRef, error) {
	name = strings.TrimSpace(name)
	ref, ok := ggmlhooks.ParsePoint(name)
	if ok {
		return ref, nil
	}
	remedy := "docs/POINTS.md lists them, such as resid_post, mlp_act and blocks.3.hook_resid_post"
	if near := cli.Nearest(name, ggmlhooks.PointNames()); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	return ref, fmt.Errorf("unknown point %q: %s", name, remedy)
}

// parseAttention also reads true and false, which is what a FlagSet passes for a flag that is alone and what YAML
// users write.
func parseAttention(s string) (ggmlhooks.AttentionMode, error) {
	modes := map[string]ggmlhooks.AttentionMode{
		"keep": ggmlhooks.AttentionKeep, "true": ggmlhooks.AttentionKeep,
		"exact": ggmlhooks.AttentionExact,
		"off":   ggmlhooks.AttentionNone, "false": ggmlhooks.AttentionNone,
	}
	mode, known := modes[s]
	if !known {
		return mode, fmt.Errorf("unknown attention mode %q: use keep, exact or off", s)
	}
	return mode, nil
}

func setOut(t *Tap, s string) error {
	if t.Out, t.Store = s, ""; object.Is(s) {
		t.Out, t.Store = DefaultOut, s
	}
	return nil
}

func parseMemory(s string) (Bytes, error) {
	size, err := ParseBytes(s)
	if err == nil && size < minMemory {
		err = fmt.Errorf("memory %q is too little to capture with: give at least %v", s, minMemory)
	}
	return size, err
}
