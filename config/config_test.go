package config

import (
	"testing"

	"github.com/llamatap/llamatap/store/codec"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "17": 17, "17B": 17, "1K": 1024, "1k": 1024, "1KiB": 1024, "1Ki": 1024, "1KB": 1000, "256M": 256 << 20,
		"1.5G": 3 << 29,
		"24GB": 24e9, "24 GB": 24e9, " 2g ": 2 << 30, "1T": 1 << 40, "0.5K": 512,
	} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if back, err := ParseBytes(got.String()); err != nil || back != got {
			t.Errorf("%q writes as %v and reads as %d, %v", text, got, back, err)
		}
	}
	for _, text := range []string{"", "M", "-1M", "1Q", "1.2.3M", "1e3", "99999999T", "0x10", "1M2", "∞"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q read as %d", text, got)
		}
	}
}

// TestStoreKnowsTheNames parses every codec and element type that the flags accept with the package that stores them.
func TestStoreKnowsTheNames(t *testing.T) {
	for _, name := range codecs {
		if id, err := codec.Parse(name); err != nil || id.String() != name {
			t.Errorf("codec %s: %v, %v", name, id, err)
		}
	}
	if id, err := codec.Parse("q-huff"); err != nil || id.String() != "q-fse" {
		t.Errorf("the old name of q-fse: %v, %v", id, err)
	}
	for _, name := range dtypes {
		if d, err := codec.ParseDType(name); err != nil || d.String() != name {
			t.Errorf("element type %s: %v, %v", name, d, err)
		}
	}
}

func TestFamily(t *testing.T) {
	for arch, want := range map[string]string{
		"qwen2": "qwen", "qwen3": "qwen", "qwen3moe": "qwen", "Qwen2VL": "qwen", "llama": "llama", "llama4": "llama",
		"mixtral": "llama",
		"gpt2":    "gpt", "gptneox": "gpt", "gpt-oss": "gpt", "gemma3": "gemma", "phi3": "phi", "mamba2": "mamba",
		"falcon-mamba": "mamba",
		"falcon":       "falcon", "jamba": "jamba", "rwkv7": "rwkv", "": "unknown",
	} {
		if got := Family(arch); got != want {
			t.Errorf("%q: family %s, want %s", arch, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	for _, c := range []struct {
		arch    string
		purpose Purpose
		preset  string
		codec   string
		ceiling Bytes
	}{
		{"qwen3moe", Interpretability, "attention_analysis", "lz4", 16 * GB},
		{"mamba", Interpretability, "balanced", "q", 24 * GB},
		{"jamba", Interpretability, "attention_analysis", "lz4", 16 * GB},
		{"llama", Debugging, "fast_capture", "none", 32 * GB},
		{"gpt2", PerformanceAnalysis, "balanced", "q-fse", 16 * GB},
		{"llama", PerformanceAnalysis, "balanced", "q-fse", 16 * GB},
		{"qwen3", PerformanceAnalysis, "balanced", "q-fse", 16 * GB},
		{"gemma3", PerformanceAnalysis, "balanced", "q", 24 * GB},
		{"", PerformanceAnalysis, "balanced", "q", 24 * GB},
		{"llama", FullCapture, "balanced", "q", 24 * GB},
	} {
		got, why := suggest(c.arch, c.purpose)
		if got.Name != c.preset || got.Codec != c.codec || got.MemoryCeiling != c.ceiling || why == "" {
			t.Errorf("%s on %q: %+v (%s)", c.purpose, c.arch, got, why)
		}
	}
	if balanced, _ := parsePreset("balanced"); balanced.Codec != "q" || balanced.MemoryCeiling != 24*GB {
		t.Errorf("a suggestion changed the preset itself: %+v", balanced)
	}
}
