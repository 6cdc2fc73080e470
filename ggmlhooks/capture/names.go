package capture

import (
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// packetNames returns the packet name of each node of a graph; "" for one that is not captured.
func packetNames(g *ggmlhooks.Graph) []string {
	names := make([]string, len(g.Nodes))
	for i := range g.Nodes {
		if g.Nodes[i].Wanted {
			names[i] = g.PacketName(i)
		}
	}
	return names
}

// leafNames gives every leaf its packet name, whether it is captured or not, counting those of one name in graph
// order: models with sliding windows have two masks of one name.
func leafNames(g *ggmlhooks.Graph) (names []string, occurrences []int) {
	seen := map[string]int{}
	for i := range g.Leafs {
		name := g.Leafs[i].Name
		seen[name]++
		occurrences = append(occurrences, seen[name])
		if k := seen[name]; k > 1 {
			name += "#" + strconv.Itoa(k)
		}
		names = append(names, name)
	}
	return names, occurrences
}
