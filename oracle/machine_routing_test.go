//go:build linux

package oracle

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/gguf"
)

// TestMachineRouting: the experts that are recorded as chosen, and their weights, are those that llama-eval-callback
// prints.
func TestMachineRouting(t *testing.T) {
	for _, arch := range archs(t, "qwen3moe", "mixtral") {
		if !sparse[arch] {
			continue
		}
		model := synthetic(t, arch, gguf.F16, nil)
		args := []string{"-m", model, "-p", prompt, "-t", "1", "-c", "512"}
		out, _ := stock(t, "llama-eval-callback", args...)
		printed := map[key]string{}
		for _, p := range parseNodes(t, out) {
			if p.graph == 1 {
				printed[key{p.name, p.op, p.occurrence, 1}] = p.body
			}
		}
		w := watch(t, collect.Machine{Routing: true}, "llama-completion", append(args, "-n", "1", "-no-cnv",
			"--temp", "0", "--no-warmup")...)
		first := w.execs[0]
		g := w.graphs[first.Graph]
		ids, weights := map[int]bool{}, map[int]bool{}
		for node, data := range w.routing[first.Number] {
			n := &g.Nodes[node]
			var values []float32
			for at := 0; at+4 <= len(data); at += 4 {
				bits := binary.LittleEndian.Uint32(data[at:])
				if n.Type == int(gguf.I32) {
					values = append(values, float32(int32(bits)))
				} else {
					values = append(values, math.Float32frombits(bits))
				}
			}
			if n.Type == int(gguf.I32) {
				ids[n.Layer] = true
			} else {
				weights[n.Layer] = true
			}
			body, ok := printed[key{n.Name, n.Op, n.Occurrence, 1}]
			if mine := printValues(n.NE, values); !ok || strings.TrimSpace(mine) != strings.TrimSpace(body) {
				t.Errorf("%s: %s (%s) is recorded as\n%sllama-eval-callback prints\n%s", arch, n.Name, n.Op, mine, body)
			}
		}
		want := map[bool]string{true: "map[1:true 3:true]", false: "map[0:true 1:true]"}[arch == "jamba"]
		if fmt.Sprint(ids) != want || fmt.Sprint(weights) != want {
			t.Errorf("%s: experts of layers %v, weights of %v", arch, ids, weights)
		}
	}
}
