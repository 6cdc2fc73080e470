package export

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// Tokens is a range of token indexes: First ≤ index < End. End -1 means no end.
type Tokens struct{ First, End int64 }

// Selection says what is exported. An empty list chooses everything.
type Selection struct {
	Layers     ggmlhooks.LayerSet
	NoLayer    bool     // with or without Layers: also what belongs to no layer
	Tensors    []string // globs, with or without layer suffix
	Components []label.Component
	Phases     []label.Phase
	Tokens     []Tokens
	Seqs       []int32
	Ctx        *uint32
}

// Check reports a glob that cannot be read.
func (s *Selection) Check() error {
	for _, glob := range s.Tensors {
		if err := (&tensors.Filter{Tensor: glob}).Check(); err != nil {
			return err
		}
	}
	return nil
}

// tensor reports whether a packet's tensor is chosen, whatever its rows are.
func (s *Selection) tensor(p *stream.Packet) bool {
	switch {
	case s.Ctx != nil && p.Ctx != *s.Ctx,
		(s.NoLayer || !s.Layers.Empty()) && !(s.NoLayer && p.Layer == label.NoLayer) && !s.Layers.Has(int(p.Layer)),
		len(s.Components) > 0 && !slices.Contains(s.Components, p.Component):
		return false
	}
	return len(s.Tensors) == 0 || slices.ContainsFunc(s.Tensors, func(glob string) bool {
		return (&tensors.Filter{Tensor: glob}).Match(p)
	})
}

// row reports whether a row of a chosen tensor is chosen.
func (s *Selection) row(r *row) bool {
	switch {
	case len(s.Phases) > 0 && !slices.Contains(s.Phases, r.phase),
		len(s.Seqs) > 0 && !slices.ContainsFunc(r.seqs, func(seq int32) bool { return slices.Contains(s.Seqs, seq) }):
		return false
	}
	return len(s.Tokens) == 0 || slices.ContainsFunc(s.Tokens, func(t Tokens) bool {
		return r.first < r.end && r.end > t.First && (t.End < 0 || r.first < t.End)
	})
}

// layerSuffix is what l_out-3 and Qcur-0#2 have of their layer.
var layerSuffix = regexp.MustCompile(`-[0-9]+(#[0-9]+)?$`)

// maxListed bounds how many names an error lists.
const maxListed = 40

// unnamed is the error for a glob of several that names no tensor; where none does, nothing says what there is.
func (s *source) unnamed() error {
	if len(s.absent) == 0 || len(s.absent) == len(s.choose.Tensors) {
		return nil
	}
	names := map[string]bool{}
	for key := range s.chosen {
		names[layerSuffix.ReplaceAllString(key.name, "$1")] = true
	}
	return fmt.Errorf("%s: no tensor is named %s; there are %s", s.run.Path, strings.Join(s.absent, ", "),
		listed(slices.Sorted(maps.Keys(names))))
}

// emptySelectionError returns the error for a selection that chooses nothing: it lists what can be chosen.
func (s *source) emptySelectionError() error {
	names, layers, components, phases := map[string]bool{}, map[int]bool{}, map[string]bool{}, map[string]bool{}
	contexts, seqs := map[int]bool{}, map[int]bool{}
	first, last := int64(-1), int64(-1)
	all, hint := source{run: s.run, ctx: s.ctx, choose: &Selection{}}, ""
	err := all.eachPiece(func(p *piece) error {
		if !s.choose.Layers.Empty() && !s.run.KnowsLayer(&p.Packet) {
			hint = "; without the index that was recorded a tensor's layer is not known: choose it by name, such as " +
				p.Name
		}
		names[layerSuffix.ReplaceAllString(p.Name, "$1")] = true
		layers[int(p.Layer)], contexts[int(p.Ctx)], components[p.Component.String()] = true, true, true
		for i := range p.rows {
			r := &p.rows[i]
			phases[r.phase.String()] = true
			for _, seq := range r.seqs {
				seqs[int(seq)] = true
			}
			if r.first >= 0 && r.first < r.end {
				if first < 0 {
					first = r.first
				}
				first, last = min(first, r.first), max(last, r.end-1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: nothing is captured: 'llamatap inspect %s' shows what is", s.run.Path, s.run.Path)
	}
	tokens := "without numbers"
	if first >= 0 {
		tokens = fmt.Sprintf("%d to %d", first, last)
	}
	return fmt.Errorf(
		"%s: nothing is chosen; there are layers %s, components %s, phases %s, contexts %s, sequences %s, tokens %s, "+
			"tensors %s%s",
		s.run.Path, numbers(layers), listed(slices.Sorted(maps.Keys(components))),
		listed(slices.Sorted(maps.Keys(phases))),
		numbers(contexts), numbers(seqs), tokens, listed(slices.Sorted(maps.Keys(names))), hint)
}

// numbers writes a set of numbers as 0-3,7; -1 is none.
func numbers(set map[int]bool) string {
	var parts []string
	sorted := slices.Sorted(maps.Keys(set))
	for i := 0; i < len(sorted); {
		from := i
		for i++; i < len(sorted) && sorted[i-1] >= 0 && sorted[i] == sorted[i-1]+1; i++ {
		}
		switch {
		case sorted[from] < 0:
			parts = append(parts, "none")
		case i-from == 1:
			parts = append(parts, fmt.Sprint(sorted[from]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[from], sorted[i-1]))
		}
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, ",")
}

func listed(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
