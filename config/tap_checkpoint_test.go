package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCheckpointsDocumented: docs/CHECKPOINTS.md names exactly the flags that are refused beside checkpoints.
func TestCheckpointsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/CHECKPOINTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "\nCheckpoints cannot be combined with ")
	list, _, end := strings.Cut(list, ". ")
	if !found || !end {
		t.Fatal("the list is not there")
	}
	documented := map[string]bool{}
	for _, flag := range regexp.MustCompile("--tap-[a-z-]+").FindAllString(list, -1) {
		documented[flag] = true
	}
	for i := range tapOptions {
		o := &tapOptions[i]
		if o.name == "config" || o.name == "resume" || strings.HasPrefix(o.name, "checkpoint") {
			continue
		}
		line := []string{"--tap-tensors", "l_out", "--tap-checkpoint-every", "9", o.flag() + "=" + optionValues[o.name]}
		if o.role == roleModifier && o.recorder == Resource {
			line = append(line, "--tap-resource-level", "MINIMAL")
		}
		_, err := resolve(world{}, line...)
		refused := err != nil && strings.Contains(err.Error(), "checkpoint")
		if refused != documented[o.flag()] {
			t.Errorf("%s: refused is %v, documented is %v: %v", o.flag(), refused, documented[o.flag()], err)
		}
	}
}
