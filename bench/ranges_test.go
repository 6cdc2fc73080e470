package bench

import (
	"slices"
	"testing"
)

func TestParseInts(t *testing.T) {
	for text, want := range map[string][]int{
		"512": {512}, "1,2, 8": {1, 2, 8}, "1-4": {1, 2, 3, 4}, "128-512+128": {128, 256, 384, 512},
		"1-8*2": {1, 2, 4, 8}, "-1,0": {-1, 0},
		"1-7*3,5": {1, 3, 5}, "3-3": {3},
	} {
		if got, err := ParseInts(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "1-", "4-1", "1-8*1", "0-8*2", "1-8+0", "1,,2", "1-100000",
		"99999999999999999999", "1-2/3"} {
		if got, err := ParseInts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
