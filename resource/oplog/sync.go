package oplog

import (
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// atOnce is a synchronisation that waited for nothing.
const atOnce = 10_000

// early reports whether a device behind a network may go on though it was synchronised: with some of ggml's versions
// that waits for nothing. It is done when its results were fetched.
func (x *execution) early(waitNS int64) bool {
	return x.plan.remote && len(x.Outputs) == 0 && waitNS < atOnce
}

// remote reports whether a part of a graph lies on a device behind a network.
func (r *Recorder) remote(g *ggmlhooks.Graph) bool {
	last, remote := uint64(0), false
	for i := range g.Nodes {
		if id := g.Nodes[i].Buffer; id != last {
			last = id
			remote = remote || strings.HasPrefix(r.memory.device(id), "RPC")
		}
	}
	return remote
}
