package oplog

import (
	"encoding/binary"
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// routing records which experts were chosen. Its slices are used again.
type routing struct {
	*writer
	ids     []int32
	weights []float32
}

// record records the choice of each token and layer. Set-up has none.
func (r *routing) record(x *execution) {
	if x.Phase == ggmlhooks.PhaseSetup || !x.level.Includes(resource.KindRouting) {
		return
	}
	for _, pair := range x.plan.routing {
		ids := x.routed(pair.ids)
		node := &x.plan.graph.Nodes[pair.ids]
		used := int(node.NE[0])
		if ids == nil || used <= 0 {
			continue
		}
		var weights []byte
		if pair.weights >= 0 {
			if weights = x.routed(pair.weights); len(weights) != len(ids) {
				weights = nil
			}
		}
		rows := len(ids) / 4 / used
		for i := range rows {
			row := x.rowAt(node.Rows, i, rows)
			if row == nil {
				continue
			}
			r.ids, r.weights = r.ids[:0], r.weights[:0]
			for at := 4 * used * i; at < 4*used*(i+1); at += 4 {
				r.ids = append(r.ids, int32(binary.LittleEndian.Uint32(ids[at:])))
				if weights != nil {
					r.weights = append(r.weights, math.Float32frombits(binary.LittleEndian.Uint32(weights[at:])))
				}
			}
			r.begin(resource.KindRouting, x.MonoNS, int64(x.Ctx))
			r.Uint("exec", x.Number)
			r.Int("layer_id", int64(pair.layer))
			describeRow(&r.Line, row)
			r.Ints("experts", r.ids)
			if weights != nil {
				r.Floats("weights", r.weights)
			}
			r.put(resource.Measured)
		}
	}
}
