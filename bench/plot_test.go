package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicture: a panel for each metric has its tests by name, and a legend where there are several configurations.
func TestPicture(t *testing.T) {
	if Picture(nil) != nil {
		t.Error("a picture of nothing")
	}
	var all []Row
	for _, tap := range []string{"off", "on"} {
		for _, gen := range []int{0, 16} {
			r := NewRow()
			r.Prompt, r.Gen, r.Tap = 64*(1-gen/16), gen, &tap
			r.SamplesNS = []int64{1e9, 2e9, 3e9}
			r.Summarise()
			all = append(all, r)
		}
	}
	path := filepath.Join(t.TempDir(), "bench.svg")
	if err := Picture(all).Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	for want, times := range map[string]int{"Tokens per second, generation": 1, "Tokens per second, prompts": 1,
		">tg16<": 1, ">pp64<": 1, ">off<": 2, ">on<": 2, ">tokens/s<": 2, "95 % intervals (bootstrap)": 1} {
		if got := strings.Count(string(text), want); err != nil || got != times {
			t.Errorf("%q is there %d times, want %d, %v", want, got, times, err)
		}
	}
}
