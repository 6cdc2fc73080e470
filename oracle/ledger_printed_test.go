//go:build linux

package oracle

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
)

// few is a prompt of so few tokens that llama-eval-callback prints every expert that is chosen for them.
const few = "func main"

var printedSource = regexp.MustCompile(`(?:^|, )(.*?)\{(\d+), (\d+), (\d+), (\d+)\}?`)

// printedOperand is an operand as llama-eval-callback prints it.
type printedOperand struct {
	name string
	ne   [4]int64
}

func (p *printed) operands() (all []printedOperand) {
	for _, m := range printedSource.FindAllStringSubmatch(p.sources, -1) {
		s := printedOperand{name: strings.TrimSpace(m[1])}
		for d := range s.ne {
			s.ne[d], _ = strconv.ParseInt(m[2+d], 10, 64)
		}
		all = append(all, s)
	}
	return all
}

// reckoner works out bytes from what llama-eval-callback prints and the model's file, and from nothing else.
type reckoner struct {
	file  *gguf.File
	types map[string]string // of what was printed before, by name
	cells int64             // tokens, all of which see each other's cells between them
	ids   map[string]int64  // experts that were chosen, by the node that holds them
}

var sizes = map[string]float64{"f32": 4, "f16": 2, "i32": 4, "i64": 8, "q8_0": 34.0 / 32}

// size is the bytes of an element of a tensor of that name.
func (r *reckoner) size(name string) (bytes float64, ok bool) {
	base, _, _ := strings.Cut(name, " (")
	if w, there := r.file.Tensor(base); there {
		bytes, ok = sizes[w.Type.String()]
		return bytes, ok
	}
	switch {
	case strings.HasPrefix(base, "cache_k_l"), strings.HasPrefix(base, "cache_v_l"):
		return 2, true
	case strings.HasPrefix(base, "cache_"):
		return 4, true
	case base == "inp_tokens", base == "inp_pos", base == "inp_out_ids", base == "out_ids":
		return 4, true
	}
	for _, known := range []string{name, base} {
		if kind, there := r.types[known]; there {
			bytes, ok = sizes[kind]
			return bytes, ok
		}
	}
	return 0, false
}

// bytes is what a printed op reads of its source k, -1: writes; false: it does not follow from what is printed.
func (r *reckoner) bytes(p *printed, k int) (n, padded int64, ok bool) {
	all := p.operands()
	if k >= len(all) || len(all) == 0 {
		return 0, 0, false
	}
	if k < 0 {
		size, known := sizes[p.typ]
		n := elements(p.ne)
		if p.op == "SET_ROWS" {
			n = elements(all[0].ne)
		}
		return int64(float64(n) * size), 0, known
	}
	s := all[k]
	size, known := r.size(s.name)
	whole := int64(float64(elements(s.ne)) * size)
	cache := strings.HasPrefix(s.name, "cache_k_l") || strings.HasPrefix(s.name, "cache_v_l")
	switch {
	case !known:
		return 0, 0, false
	case p.op == "GET_ROWS" && k == 0:
		return int64(float64(elements(p.ne)) * size), 0, true
	case p.op == "MUL_MAT_ID" && k == 0:
		return whole / s.ne[2] * r.ids[p.name], 0, r.ids[p.name] > 0
	case p.op == "ADD_ID" && k == 1:
		return whole / s.ne[1] * r.ids[p.name], 0, r.ids[p.name] > 0
	case cache && p.op == "FLASH_ATTN_EXT" && k == 1, cache && p.op == "MUL_MAT" && k == 0 && strings.HasPrefix(s.name,
		"cache_k_l"):
		return whole / s.ne[1] * r.cells, whole / s.ne[1] * (s.ne[1] - r.cells), true
	case cache && p.op == "MUL_MAT" && k == 0:
		return whole / s.ne[0] * r.cells, whole / s.ne[0] * (s.ne[0] - r.cells), true
	case cache && p.op != "SET_ROWS":
		return 0, 0, false
	}
	return whole, 0, true
}

// experts counts the different numbers that are printed of the experts that an op uses: of the last tensor of their
// layer before it.
func (r *reckoner) experts(nodes []*printed, at int) {
	for i := at; i >= 0; i-- {
		if strings.HasPrefix(nodes[i].name, "ffn_moe_topk") || strings.HasPrefix(nodes[i].name, "ffn_moe_argsort") &&
			nodes[i].ne[0] == nodes[at].ne[1] {
			seen := map[string]bool{}
			values, _, _ := strings.Cut(nodes[i].body, "sum =")
			for _, word := range strings.FieldsFunc(values,
				func(c rune) bool { return strings.ContainsRune("[], \n.", c) }) {
				if _, err := strconv.Atoi(word); err == nil && word != "0000" {
					seen[word] = true
				}
			}
			r.ids[nodes[at].name] = int64(len(seen))
			return
		}
	}
}

// TestLedgerAgainstEvalCallback: of a prompt each op reads and writes as many bytes as follow from the shapes that
// llama-eval-callback prints, the types in the model's file, and the experts that it prints.
func TestLedgerAgainstEvalCallback(t *testing.T) {
	for _, arch := range archs(t, "llama", "qwen3moe", "mamba") {
		for _, fa := range []string{"on", "off"} {
			t.Run(arch+" fa "+fa, func(t *testing.T) {
				model := synthetic(t, arch, gguf.F16, nil)
				file, err := gguf.Open(model)
				if err != nil {
					t.Fatal(err)
				}
				args := []string{"-m", model, "-p", few, "-t", "1", "-c", "256", "-fa", fa}
				out, _ := stock(t, "llama-eval-callback", args...)
				b := newBookkeeper(t)
				rows := b.keep(tappedTool(t, "llama-completion", append(args, "-n", "1", "-no-cnv", "--temp", "0",
					"--no-warmup")...))
				first := b.execs[0]
				recorded := map[operandKey][2]int64{}
				for _, row := range rows {
					key := operandKey{row.graph, row.node, row.operand}
					sums := recorded[key]
					if row.flags&int64(memtrace.TracePadded) != 0 {
						sums[1] += row.size
					} else {
						sums[0] += row.size
					}
					recorded[key] = sums
				}
				places := map[key]int64{}
				for i := range b.graphs[first.Graph].Nodes {
					n := &b.graphs[first.Graph].Nodes[i]
					places[key{strings.TrimSpace(n.Name), n.Op, n.Occurrence, 1}] = int64(i)
				}
				r := &reckoner{file: file, types: map[string]string{}, cells: int64(len(first.Tokens)),
					ids: map[string]int64{}}
				nodes := parseNodes(t, out)
				checked, all := 0, 0
				for i, p := range nodes {
					if p.graph != 1 {
						break
					}
					if p.op == "MUL_MAT_ID" || p.op == "ADD_ID" {
						r.experts(nodes, i)
					}
					node, there := places[p.key()]
					if there && !b.graphs[first.Graph].Nodes[node].Computed {
						continue // llama-eval-callback is asked for what is built and never run
					}
					for k := -1; k < 2 && !p.view() && elements(p.ne) > 0; k++ {
						if p.op == "CPY" && k == 1 || k >= len(p.operands()) ||
							k >= 0 && elements(p.operands()[k].ne) == 0 {
							continue
						}
						all++
						want, padded, ok := r.bytes(p, k)
						if !ok {
							continue
						}
						checked++
						if got := recorded[operandKey{int64(first.Number), node, int64(k)}]; !there ||
							got != [2]int64{want, padded} {
							t.Errorf("%s (%s), operand %d: rows have %v bytes, want %d and %d behind the mask; "+
								"printed %s", p.name, p.op, k, got, want, padded, p.sources)
						}
					}
					r.types[p.name] = p.typ
				}
				if len(first.Tokens) > 6 || checked < 50 || checked < all*8/10 {
					t.Errorf("%d tokens; %d of %d operands are checked", len(first.Tokens), checked, all)
				}
			})
		}
	}
}
