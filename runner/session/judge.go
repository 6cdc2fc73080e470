//go:build linux

package session

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
)

// judge refuses a selection that matches nothing, at the first graph of tokens: the model waits for this judgement.
// What the model had measured before counts too, so that a name may be one of a later graph.
type judge struct {
	run    *run
	vector *vector // that is added from the start; nil: none
	done   bool
}

// graph judges by a graph, unless that is done.
func (j *judge) graph(g *ggmlhooks.Graph) error {
	if j.done || g.Tokens == 0 {
		return nil
	}
	tap := j.run.o.Tap
	if err := tap.CheckLayers(layers(g)); err != nil {
		return fmt.Errorf("%w: %w", ErrSelection, err)
	}
	j.done = true
	if j.vector != nil {
		if err := j.vector.check(j.run.region); err != nil {
			return steerError{fmt.Errorf("--tap-steer: %w", err)}
		}
	}
	if tap.StartOff || !tap.Records(config.Activations) || g.Selection != 0 {
		return nil // what is captured now, or never was, has no hits to judge by
	}
	for i, glob := range tap.Tensors {
		if j.run.region.GlobHits(i) == 0 {
			return fmt.Errorf("%w: --tap-tensor %q matches no node of this model; these names exist: %s", ErrSelection,
				glob, globNames(g, j.run.computed(g), anyNode))
		}
	}
	if err := j.points(g); err != nil {
		return err
	}
	if j.run.region.Matched() > 0 {
		return nil
	}
	names := globNames(g, j.run.computed(g), func(n *ggmlhooks.Node) bool { return n.Computed && allows(tap, n) })
	if names == "" || tap.AttentionAlone() {
		names = globNames(g, j.run.computed(g), anyNode) + " (of other layers and components)"
	}
	return fmt.Errorf("%w: no node of this model matches %s; these names exist: %s", ErrSelection, selectionText(tap),
		names)
}

// steerError is why a vector from the start does not fit the model. The program ends before it computes.
type steerError struct{ error }

func (steerError) Is(target error) bool { return target == ErrSelection }

// points names each selected point that the model lacks, once, with the reason, and refuses a selection of no others.
func (j *judge) points(g *ggmlhooks.Graph) error {
	selection := j.run.o.Tap.Selection()
	if len(selection.Points) == 0 {
		return nil
	}
	type lack struct{ point, why string }
	found, in := 0, map[lack]*ggmlhooks.LayerSet{}
	var lacks []lack
	for _, site := range g.Points() {
		switch {
		case !selection.WantsPoint(site.Point, site.Layer):
		case site.Node >= 0 && g.Nodes[site.Node].Wanted:
			found++
		default:
			l := lack{site.Point.String(), site.Why}
			if site.Node >= j.run.computed(g) {
				l.why = "--all-rows computes no logits"
			}
			if in[l] == nil {
				lacks, in[l] = append(lacks, l), &ggmlhooks.LayerSet{}
			}
			if site.Layer != ggmlhooks.NoLayer {
				in[l].Add(site.Layer)
			}
		}
	}
	if n := layers(g); n > 0 {
		beyond := lack{why: fmt.Sprintf("the model has layers 0 to %d", n-1)}
		for _, ref := range selection.Points {
			if ref.Layer < n { // or NoLayer
				continue
			}
			beyond.point = ref.Point.String()
			if in[beyond] == nil {
				lacks, in[beyond] = append(lacks, beyond), &ggmlhooks.LayerSet{}
			}
			in[beyond].Add(ref.Layer)
		}
	}
	sort.SliceStable(lacks, func(a, b int) bool { return lacks[a].point < lacks[b].point })
	var text []string
	for _, l := range lacks {
		where := ""
		if !in[l].Empty() {
			where = " (layers " + in[l].String() + ")"
		}
		text = append(text, fmt.Sprintf("%s%s: %s", l.point, where, l.why))
	}
	if found == 0 && len(j.run.o.Tap.Tensors) == 0 {
		return fmt.Errorf("%w: this model has none of the points of --tap-point: %s", ErrSelection,
			strings.Join(text, "; "))
	}
	if len(selection.Points) == int(ggmlhooks.NumPoints) {
		return nil // all: those that the model has
	}
	for _, line := range text {
		fmt.Fprintln(present.Err, "llamatap: --tap-point: not captured, "+line)
	}
	return nil
}

// layers is the number of layers that a graph has.
func layers(g *ggmlhooks.Graph) int {
	n := 0
	for i := range g.Nodes {
		n = max(n, g.Nodes[i].Layer+1)
	}
	return n
}

func anyNode(*ggmlhooks.Node) bool { return true }

// allows reports whether granularity and layers allow a node.
func allows(tap *config.Tap, n *ggmlhooks.Node) bool {
	switch {
	case tap.Granularity == ggmlhooks.AttentionOnly && n.Component != ggmlhooks.ComponentAttention,
		tap.Granularity == ggmlhooks.MLPOnly && n.Component != ggmlhooks.ComponentMLP:
		return false
	}
	return tap.Layers.Empty() || tap.Layers.Has(n.Layer)
}

// selectionText names the settings that together match nothing.
func selectionText(tap *config.Tap) string {
	var parts []string
	if tap.AttentionAlone() {
		parts = append(parts, "attention "+tap.Attention.String())
	} else if tap.Granularity != ggmlhooks.FullTensor {
		parts = append(parts, "granularity "+tap.Granularity.String())
	}
	if !tap.Layers.Empty() {
		parts = append(parts, "layers "+tap.Layers.String())
	}
	if len(tap.Tensors) > 0 {
		parts = append(parts, "tensors "+strings.Join(tap.Tensors, ","))
	}
	return strings.Join(parts, " with ")
}

// computed is how many nodes of a graph are computed.
func (r *run) computed(g *ggmlhooks.Graph) int {
	last := slices.IndexFunc(g.Nodes, func(n ggmlhooks.Node) bool { return n.Name == "result_norm" })
	if !r.o.NoLogits || last < 0 {
		return len(g.Nodes)
	}
	return last + 1
}

// globNames lists the names of nodes that a tensor glob could have meant, without layer numbers, each once.
func globNames(g *ggmlhooks.Graph, computed int, of func(*ggmlhooks.Node) bool) string {
	var names []string
	seen := map[string]bool{}
	for i := range computed {
		if !of(&g.Nodes[i]) {
			continue
		}
		name := g.Nodes[i].Name
		if at := strings.LastIndexByte(name, '-'); at > 0 && g.Nodes[i].Layer >= 0 {
			name = name[:at]
		}
		if strings.HasPrefix(name, "node_") || strings.ContainsAny(name, " (") || name == "" || seen[name] {
			continue
		}
		seen[name] = true
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
