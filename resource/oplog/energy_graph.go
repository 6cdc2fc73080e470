package oplog

import (
	"math"
	"strconv"

	"github.com/llamatap/llamatap/resource"
)

// graphEnergy is what domains used for an execution, by their numbers.
type graphEnergy struct {
	ctx    uint32
	exec   uint64
	part   part
	tokens int64
	late   int64     // time in windows that were divided before it was recorded
	layers []float64 // shares of its time; nil: layers were not timed
	use    []graphUse
}

// graphUse is energy, and the time in windows of which that is not known.
type graphUse struct {
	joules, uncovered float64
	source            string // "": there was no window
}

// maxLayers bounds the layers that are distinguished.
const maxLayers = 1 << 12

func newGraphEnergy(x *execution, s busySpan) *graphEnergy {
	g := &graphEnergy{ctx: x.Ctx, exec: x.Number, part: s.part, tokens: int64(len(x.Rows))}
	sum := 0.0
	for i := range x.spans {
		layer, ns := x.plan.runs[i].layer, x.spans[i].ns
		if layer < 0 {
			continue
		}
		if ns < 0 || layer >= maxLayers { // timed with another layer
			g.layers = nil
			return g
		}
		for len(g.layers) <= layer {
			g.layers = append(g.layers, 0)
		}
		g.layers[layer] += float64(ns)
		sum += float64(ns)
	}
	for i := range g.layers {
		g.layers[i] /= max(sum, float64(s.end-s.start))
	}
	return g
}

// addWindow adds what a domain used in ns of a window.
func (g *graphEnergy) addWindow(domain int, w *energyWindow, ns float64) {
	for len(g.use) <= domain {
		g.use = append(g.use, graphUse{})
	}
	use := &g.use[domain]
	if w.source == "" {
		use.uncovered += ns
		return
	}
	use.joules += w.joules * ns / float64(w.end-w.start)
	if use.source != resource.PowerSamples {
		use.source = w.source
	}
}

// graphs writes what was used for each execution all of whose windows are divided.
func (d *devices) graphs(mono int64) {
	digits := func(v float64) func([]byte) []byte { // all of them: sums are compared
		return func(dst []byte) []byte { return strconv.AppendFloat(dst, v, 'g', -1, 64) }
	}
	for _, g := range d.energy.done {
		for i, use := range g.use {
			if use.source == "" || d.level() == resource.Off {
				continue
			}
			d.begin(resource.KindGraphEnergy, max(mono, d.newest.Load()), int64(g.ctx))
			d.Uint("exec", g.exec)
			d.String("domain", d.energy.domains[i].name)
			d.String("phase", g.part.String())
			d.Key("apportioned_j")
			d.Append(digits(use.joules))
			d.String("energy_source", use.source)
			d.Int("tokens", g.tokens)
			if ns := int64(math.Round(use.uncovered)) + g.late; ns > 0 {
				d.Int("uncovered_ns", ns)
			} else {
				d.Key("joules_per_token")
				d.Append(digits(use.joules / float64(g.tokens)))
			}
			if g.layers != nil {
				d.Key("layer_j")
				d.Append(func(dst []byte) []byte {
					for layer, share := range g.layers {
						dst = digits(use.joules * share)(append(dst, "[,"[min(layer, 1)]))
					}
					return append(dst, ']')
				})
			}
			d.put(resource.Computed)
		}
	}
	d.energy.done = d.energy.done[:0]
}
