//go:build linux

package oracle

import (
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestOneAtATime captures nodes one by one, so that ggml stops nowhere else, and compares them with the run that
// captured all: a buffer that is used again before it was copied would differ, and so would a model that the
// capture disturbs.
func TestOneAtATime(t *testing.T) {
	models := map[string]string{"default": testenv.Model(t), "moe": synthetic(t, "qwen3moe", gguf.Q8_0, nil)}
	if testenv.Nightly() {
		models["jamba"] = synthetic(t, "jamba", gguf.F16, nil)
		models["gpt-oss"] = synthetic(t, "gpt-oss", gguf.F16, nil)
	}
	for name, model := range models {
		for _, fa := range []string{"on", "off"} {
			if !testenv.Nightly() && (name == "moe") != (fa == "off") {
				continue // by day each model with one of them
			}
			t.Run(name+" fa "+fa, func(t *testing.T) {
				t.Parallel()
				oneAtATime(t, model, fa)
			})
		}
	}
}

func oneAtATime(t *testing.T, model, fa string) {
	args := []string{"-m", model, "-p", prompt, "-n", "4", "--temp", "0", "-t", "2", "-c", "512", "-ub", "8", "-fa", fa}
	all := record(t, everything, args...).tensors(t)
	for _, name := range evenly(nodeNames(all), 5) {
		glob := name
		if strings.HasPrefix(name, " ") {
			glob = "?" + name[1:] // lists of globs are trimmed
		}
		alone := record(t, append([]string{"--tap-tensors", glob}, exact...), args...)
		compared := 0
		for k, x := range alone.tensors(t) {
			if !asked(k.node, name) && !asked(x.Name, name) {
				t.Errorf("%s was asked for, and %v came", name, k)
			}
			if want := all[k]; want != nil { // else it is a view, which is captured only when it is named
				compared++
				if x.NE != want.NE || !sameBits(x.values, want.values) {
					t.Errorf("%v: alone %s", k, firstDifference(x.values, want.values))
				}
			}
		}
		if want := countName(all, name); compared != want {
			t.Errorf("%s: %d tensors alone, %d with all others", name, compared, want)
		}
	}
}

// nodeNames lists the names of captured nodes by which they can be asked for.
func nodeNames(all map[key]*tensor) []string {
	var names []string
	for _, x := range all {
		names = append(names, nameOf(x))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nameOf is the name by which a node is asked for: its own, or that of the view that stands for an unnamed one.
func nameOf(x *tensor) string {
	if isUnnamed(x.Node) && x.Occurrence == 1 {
		return x.Name
	}
	return x.Node
}

// asked reports whether a glob without stars matches a node: its name, or its name without the layer ("norm" is
// "norm-0" too).
func asked(node, glob string) bool {
	return node == glob || layerSuffix.MatchString(node) && strings.HasPrefix(node, glob+"-") &&
		!strings.Contains(node[len(glob)+1:], "-")
}

func isUnnamed(node string) bool { return len(node) > 5 && node[:5] == "node_" }

func countName(all map[key]*tensor, name string) int {
	n := 0
	for _, x := range all {
		if asked(nameOf(x), name) {
			n++
		}
	}
	return n
}

// evenly takes n names, evenly spread; five times as many in a nightly run.
func evenly(names []string, n int) []string {
	if testenv.Nightly() {
		n *= 5
	}
	if n >= len(names) {
		return names
	}
	var some []string
	for i := range n {
		some = append(some, names[i*len(names)/n])
	}
	return some
}
