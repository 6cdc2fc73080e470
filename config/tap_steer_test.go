package config

import "testing"

// TestParseSteer: "" is what cannot be read. What does not look like a scale or layers belongs to the file's name.
func TestParseSteer(t *testing.T) {
	for text, want := range map[string]string{
		"v.gguf": "v.gguf:1", "v.gguf:0.5": "v.gguf:0.5", "v.gguf:-2:3-5": "v.gguf:-2:3-5",
		"v.gguf:3-5": "v.gguf:1:3-5", "v.gguf:3": "v.gguf:3", "v.gguf:1:3": "v.gguf:1:3",
		"v.gguf:1e-3:1,4-6": "v.gguf:0.001:1,4-6",
		"a:b.gguf":          "a:b.gguf:1", "a:2/b.gguf:7": "a:2/b.gguf:7", "v.gguf:NaN": "v.gguf:NaN:1",
		"": "", "v.gguf:1e99": "", "v.gguf:1.2.3": "", "v.gguf:1:5-3": "",
	} {
		s, err := ParseSteer(text)
		if (err != nil) != (want == "") || err == nil && s.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, s.String(), err, want)
		}
	}
}
