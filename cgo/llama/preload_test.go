package llama

import (
	"slices"
	"testing"
)

// TestPreloadFromSpaces: loaders take a space as the end of a library's name. The tap's folder goes where it is none.
func TestPreloadFromSpaces(t *testing.T) {
	env := []string{"LD_PRELOAD=/gone.so", "LD_PRELOAD=/other.so", "LD_LIBRARY_PATH=/before"}
	for tap, want := range map[string][]string{
		"/my tools/tap.so": {"LD_PRELOAD=tap.so:/other.so", "LD_LIBRARY_PATH=/my tools:/before"},
		"/tools/tap.so":    {"LD_LIBRARY_PATH=/before", "LD_PRELOAD=/tools/tap.so:/other.so"},
	} {
		if got := Preload(env, tap); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", tap, got, want)
		}
	}
	if got := Preload(nil, "/tap.so"); !slices.Equal(got, []string{"LD_PRELOAD=/tap.so"}) {
		t.Errorf("%q", got)
	}
}
