//go:build linux

package oracle

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/stream"
)

// TestPlaces lets no computed node of any architecture be without component and layer, in graphs of a long prompt,
// a short one and one token, with flash attention on and off.
func TestPlaces(t *testing.T) {
	for i, arch := range testenv.ByDay(synth.Archs(), 3) {
		for _, fa := range attentions(i) {
			t.Run(arch+" fa "+fa, func(t *testing.T) {
				t.Parallel()
				model := synthetic(t, arch, gguf.F16, nil)
				c := record(t, everything, "-m", model, "-p", prompt, "-n", "3", "--temp", "0", "-t", "1", "-c", "512",
					"-ub", "8", "-fa", fa)
				layers := map[int32]bool{}
				sums := map[layerOf]int{}
				deepest := map[uint64]int32{}
				for i := range c.packets {
					p := &c.packets[i]
					if wrong := misplaced(p); wrong != "" {
						t.Errorf("%v: layer %d, component %v: %s", keyOf(p), p.Layer, p.Component, wrong)
					}
					layers[p.Layer] = true
					if p.Op == "ADD" && p.Component == ggmlhooks.ComponentResidual {
						sums[layerOf{p.Exec, p.Layer}]++
					}
					if p.Rows == ggmlhooks.RowsNone {
						continue // a graph fetches the state of the next recurrent layer early
					}
					if p.Layer >= 0 && p.Layer < deepest[p.Exec] {
						t.Errorf("%v: layer %d after layer %d", keyOf(p), p.Layer, deepest[p.Exec])
					}
					deepest[p.Exec] = max(deepest[p.Exec], p.Layer)
				}
				checkSums(t, sums, arch, c.meta.Model.NLayer)
				if len(layers) != c.meta.Model.NLayer+1 {
					t.Errorf("layers %v of a model with %d", layers, c.meta.Model.NLayer)
				}
			})
		}
	}
}

// layerOf is one layer of one execution.
type layerOf struct {
	exec  uint64
	layer int32
}

// checkSums demands that each layer adds to the residual stream as often as its architecture has parts: a mixer and
// a feed-forward network, or in mamba the mixer alone. Where nodes have names, these say the same.
func checkSums(t *testing.T, sums map[layerOf]int, arch string, layers int) {
	t.Helper()
	want := 2
	if arch == "mamba" {
		want = 1
	}
	seen := map[int32]bool{}
	for at, n := range sums {
		seen[at.layer] = true
		if n != want {
			t.Errorf("execution %d, layer %d: %d sums of the residual stream, want %d", at.exec, at.layer, n,
				want)
		}
	}
	if len(seen) != layers {
		t.Errorf("sums of the residual stream in %d of %d layers", len(seen), layers)
	}
}

var layerSuffix = regexp.MustCompile(`(?:-|cache_[a-z]+_l)([0-9]+)(?: .*)?$`)

// roles are nodes whose component their name, given by llama.cpp, leaves no doubt of. (Not ffn_inp: in jamba it
// stands on what is added to the residual stream.)
var roles = []struct {
	pattern   *regexp.Regexp
	component ggmlhooks.Component
}{
	{regexp.MustCompile(`^(Q|K|V)cur|^kq|^attn_out|^cache_[kv]_l`), ggmlhooks.ComponentAttention},
	{regexp.MustCompile(`^ffn_(gate|up|out|norm|moe|swiglu|geglu)`), ggmlhooks.ComponentMLP},
	{regexp.MustCompile(`^l_out-`), ggmlhooks.ComponentResidual},
	{regexp.MustCompile(`^result_`), ggmlhooks.ComponentOutput},
	{regexp.MustCompile(`^(embd|inp_scaled)$`), ggmlhooks.ComponentInput},
	{regexp.MustCompile(`^cache_[rs]_l`), ggmlhooks.ComponentSSM},
}

// misplaced says what is wrong with a node's place.
func misplaced(p *stream.Packet) string {
	outside := p.Component == ggmlhooks.ComponentInput || p.Component == ggmlhooks.ComponentOutput
	switch {
	case p.Component == ggmlhooks.ComponentOther:
		return "no component"
	case p.Layer < 0 && !outside:
		return "no layer"
	case p.Component == ggmlhooks.ComponentCache:
		return "this is no maintenance graph"
	}
	// A recurrent mixer's states, and the V cache's single elements without flash attention, have no row per token.
	if p.Rows == ggmlhooks.RowsNone && p.Component != ggmlhooks.ComponentSSM && (p.Op != "SET_ROWS" || p.NE[0] != 1) {
		return "no dimension of it runs over tokens"
	}
	if m := layerSuffix.FindStringSubmatch(p.Node); m != nil {
		if n, _ := strconv.Atoi(m[1]); int32(n) != p.Layer {
			return fmt.Sprintf("its name says layer %d", n)
		}
	}
	if strings.HasPrefix(p.Op, "SSM_") && p.Component != ggmlhooks.ComponentSSM {
		return "its op is a recurrent mixer's"
	}
	for _, role := range roles {
		if role.pattern.MatchString(p.Node) && p.Component != role.component {
			return fmt.Sprintf("its name says %v", role.component)
		}
	}
	return ""
}

// TestPlacesSteered demands that a control vector is added within the residual stream, which goes on behind it.
func TestPlacesSteered(t *testing.T) {
	for _, arch := range []string{"llama", "phi3"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			var width int
			model := synthetic(t, arch, gguf.F16, func(c *synth.Config) { c.Layers, width = 4, c.Width })
			c := record(t, everything, "-m", model, "-p", prompt, "-n", "3", "--temp", "0", "-t", "1", "-c", "512",
				"--control-vector", steerFile(t, 4, width))
			sums := map[layerOf]int{}
			for i := range c.packets {
				if p := &c.packets[i]; p.Op == "ADD" && p.Component == ggmlhooks.ComponentResidual {
					sums[layerOf{p.Exec, p.Layer}]++
				}
			}
			if len(sums) == 0 {
				t.Error("no sums of the residual stream")
			}
			for at, n := range sums {
				if want := 2 + min(at.layer, 1); n != int(want) {
					t.Errorf("execution %d, layer %d: %d sums of the residual stream, want %d", at.exec, at.layer, n,
						want)
				}
			}
		})
	}
}
