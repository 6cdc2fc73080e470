package capture

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Path is how the tensors of a name came to be captured: copied when the whole graph was computed, or by stopping the
// graph after each of them.
type Path struct {
	Tensor    string             `json:"tensor"` // without its layer
	Whole     int64              `json:"whole_graph"`
	Cut       int64              `json:"cut_graph"`
	CutLayers ggmlhooks.LayerSet `json:"cut_layers,omitzero"` // those of Cut that belong to a layer
}

// paths counts captured tensors, in pieces, by the name of their packets and by how they were captured.
type paths map[string]*pathCount

type pathCount struct {
	layer      int32
	whole, cut int64
}

func (p paths) add(name string, layer int32, cut bool) {
	c := p[name]
	if c == nil {
		c = &pathCount{layer: layer}
		p[name] = c
	}
	if cut {
		c.cut++
	} else {
		c.whole++
	}
}

// list returns the paths by tensor, in the order of their names.
func (p paths) list() []Path {
	byTensor := map[string]*Path{}
	for name, c := range p {
		tensor := ggmlhooks.WithoutLayer(name)
		path := byTensor[tensor]
		if path == nil {
			path = &Path{Tensor: tensor}
			byTensor[tensor] = path
		}
		path.Whole += c.whole
		path.Cut += c.cut
		if c.cut > 0 && c.layer >= 0 {
			path.CutLayers.Add(int(c.layer))
		}
	}
	all := make([]Path, 0, len(byTensor))
	for _, path := range byTensor {
		all = append(all, *path)
	}
	slices.SortFunc(all, func(a, b Path) int { return cmp.Compare(a.Tensor, b.Tensor) })
	return all
}
