//go:build linux

package oracle

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// prompt takes several micro-batches with -ub 8, and fewer cells than the smallest sliding window.
const prompt = "func main() {\n\tfmt.Println(\"hello, world\") // and more\n}"

// A printed node is one that llama-eval-callback showed: its head and its values as text.
type printed struct {
	name, typ, op, sources string
	ne                     [4]int64
	body                   string
	graph                  uint64 // from 1
	occurrence             int
}

func (p *printed) key() key { return key{p.name, p.op, p.occurrence, p.graph} }

// view reports whether the node computes nothing.
func (p *printed) view() bool {
	return slices.Contains([]string{"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}, p.op)
}

var nodeLine = regexp.MustCompile(`^common_debug_cb_eval: +(.*) = \((\w+)\) +(\S+)\((.*)\}\) = ` +
	`\{(\d+), (\d+), (\d+), (\d+)\}$`)

// parseNodes reads what llama-eval-callback prints. A graph begins anew where its first node comes again.
func parseNodes(t *testing.T, text string) []*printed {
	t.Helper()
	var nodes []*printed
	seen := map[key]int{}
	graph := uint64(0)
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		m := nodeLine.FindStringSubmatch(scan.Text())
		if m == nil {
			if strings.HasPrefix(scan.Text(), "common_debug_cb_eval") {
				t.Fatalf("not understood: %q", scan.Text())
			}
			if len(nodes) > 0 {
				nodes[len(nodes)-1].body += scan.Text() + "\n"
			}
			continue
		}
		n := &printed{name: strings.TrimSpace(m[1]), typ: m[2], op: m[3], sources: m[4]}
		for d := range n.ne {
			n.ne[d], _ = strconv.ParseInt(m[5+d], 10, 64)
		}
		if len(nodes) == 0 || n.name == nodes[0].name && n.op == nodes[0].op &&
			n.sources[:20] == nodes[0].sources[:20] {
			graph++
		}
		n.graph = graph
		k := key{n.name, n.op, 0, graph}
		seen[k]++
		n.occurrence = seen[k]
		nodes = append(nodes, n)
	}
	return nodes
}

// printValues writes values as llama-eval-callback does: the first and last three of each dimension but the last,
// four decimals, and a sum that is taken in float32, one element after the other.
func printValues(ne [4]int64, values []float32) string {
	var b strings.Builder
	var sum float32
	for _, v := range values {
		sum += v
	}
	for i3 := range ne[3] {
		b.WriteString("    [\n")
		edges(ne[2], func() { b.WriteString("        ..., \n") }, func(i2 int64) {
			b.WriteString("        [\n")
			edges(ne[1], func() { b.WriteString("            ..., \n") }, func(i1 int64) {
				b.WriteString("            [")
				edges(ne[0], func() { b.WriteString("   ..., ") }, func(i0 int64) {
					b.WriteString(fmt.Sprintf("%12s", decimals(values[((i3*ne[2]+i2)*ne[1]+i1)*ne[0]+i0], 4)))
					if i0 < ne[0]-1 {
						b.WriteString(", ")
					}
				})
				b.WriteString("  ],\n")
			})
			b.WriteString("        ],\n")
		})
		fmt.Fprintf(&b, "    ]\n    sum = %s\n", decimals(sum, 6))
	}
	return b.String()
}

// edges visits the first and the last three of n.
func edges(n int64, skip func(), visit func(int64)) {
	for i := int64(0); i < n; i++ {
		if i == 3 && n > 6 {
			skip()
			i = n - 3
		}
		visit(i)
	}
}

// decimals writes a number as C's %f does.
func decimals(v float32, digits int) string {
	switch x := float64(v); {
	case math.IsNaN(x) && math.Signbit(x):
		return "-nan"
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	default:
		return strconv.FormatFloat(x, 'f', digits, 64)
	}
}

// halves rounds values to F16.
func halves(t *testing.T, values []float32) []float32 {
	t.Helper()
	var full []byte
	for _, v := range values {
		full = binary.LittleEndian.AppendUint32(full, math.Float32bits(v))
	}
	packed, _, err := codec.Convert(nil, full, codec.F32, codec.F16)
	if err != nil {
		t.Fatal(err)
	}
	rounded, err := codec.AppendFloat32(nil, packed, codec.F16)
	if err != nil {
		t.Fatal(err)
	}
	return rounded
}

// A shadow is a cache as the rows that were written into it make it.
type shadow map[string][]float32

// write puts the captured rows of a SET_ROWS into the cache, which is what llama-eval-callback shows. An empty
// cache is filled from cell 0 on. The V cache without flash attention is transposed: a row is one element, cells
// run fastest.
func (s shadow) write(t *testing.T, p *printed, x *tensor) []float32 {
	t.Helper()
	cache := s[p.name]
	if cache == nil {
		cache = make([]float32, elements(p.ne))
		s[p.name] = cache
	}
	rows := halves(t, x.values)
	width := int64(len(rows)) / int64(x.TokenCount)
	cells := elements(p.ne) / width
	for i := range int64(x.TokenCount) {
		cell := x.TokenFirst + i
		for j, v := range rows[i*width : (i+1)*width] {
			if p.ne[0] == 1 {
				cache[int64(j)*cells+cell] = v
			} else {
				cache[cell*width+int64(j)] = v
			}
		}
	}
	return cache
}

// neverRun reports whether llama.cpp built a node without running it: llama-eval-callback shows what happens to lie
// in its memory. Since 0.7.0 each graph has a branch for embeddings mixed into the batch's tokens; without any it
// is switched off, up to the node that would write the rows.
func neverRun(p *printed) bool {
	return strings.Contains(p.sources, "inp_mixed_")
}

// compareNodes compares a run with what llama-eval-callback printed of the same prompt and settings, node by node.
func compareNodes(t *testing.T, nodes []*printed, got *capture) {
	t.Helper()
	have := map[key]*tensor{}
	first := got.execs()[0].Exec
	for k, x := range got.tensors(t) {
		k.node, k.exec = strings.TrimSpace(k.node), k.exec-first+1
		have[k] = x
	}
	caches := shadow{}
	compared := 0
	for _, p := range nodes {
		if p.view() || elements(p.ne) == 0 || neverRun(p) {
			continue
		}
		x := have[p.key()]
		if x == nil {
			t.Errorf("%v(%s) is not captured", p.key(), p.sources)
			continue
		}
		delete(have, p.key())
		values := x.values
		if p.op == "SET_ROWS" {
			values = caches.write(t, p, x)
		} else if elements(x.NE) != elements(p.ne) {
			t.Errorf("%v: shape %v, llama-eval-callback has %v", p.key(), x.NE, p.ne)
			continue
		}
		if mine := printValues(p.ne, values); strings.TrimSpace(mine) != strings.TrimSpace(p.body) {
			t.Errorf("%v(%s): captured\n%sllama-eval-callback prints\n%s", p.key(), p.sources, mine, p.body)
		}
		compared++
	}
	for k := range have {
		t.Errorf("%v is captured, and llama-eval-callback does not know it", k)
	}
	if compared < 40 {
		t.Errorf("only %d nodes were compared", compared)
	}
}

// evalCallback is the oracle for one model and setting.
func evalCallback(t *testing.T, model string, settings ...string) {
	t.Helper()
	args := append([]string{"-m", model, "-p", prompt, "-t", "1", "-c", "512"}, settings...)
	out, _ := stock(t, "llama-eval-callback", args...)
	nodes := parseNodes(t, out)
	if len(nodes) == 0 {
		t.Fatal("llama-eval-callback printed no node")
	}
	compareNodes(t, nodes, record(t, everything, append(args, "-n", "1", "--temp", "0")...))
}

// TestEvalCallback compares every node of the default model.
func TestEvalCallback(t *testing.T) {
	for _, fa := range []string{"on", "off"} {
		for _, ub := range []string{"8", "512"} {
			t.Run("fa "+fa+" ub "+ub, func(t *testing.T) {
				evalCallback(t, testenv.Model(t), "-fa", fa, "-ub", ub)
			})
		}
	}
}

// TestEvalCallbackArchs compares every node of every architecture.
func TestEvalCallbackArchs(t *testing.T) {
	for i, arch := range archs(t, "llama", "qwen3moe", "gemma2", "mamba") {
		for _, fa := range attentions(i) {
			t.Run(arch+" fa "+fa, func(t *testing.T) {
				t.Parallel()
				evalCallback(t, synthetic(t, arch, gguf.F16, nil), "-fa", fa)
				if testenv.Nightly() {
					evalCallback(t, synthetic(t, arch, gguf.Q8_0, nil), "-fa", fa, "-ub", "8")
				}
			})
		}
	}
}
