package capture

import (
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// packetNames gives every node that is captured of a graph its packet name: the node's name, or that of the view that stands for
// it, for the first captured node of that name; NAME#2, NAME#3 for further ones, in graph order.
func packetNames(g *ggmlhooks.Graph) []string {
	names := make([]string, len(g.Nodes))
	seen := map[string]int{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !n.Wanted {
			continue
		}
		name := n.Name
		if n.Alias >= 0 && n.Alias < len(g.Nodes) {
			name = g.Nodes[n.Alias].Name
		}
		seen[name]++
		if k := seen[name]; k > 1 {
			name += "#" + strconv.Itoa(k)
		}
		names[i] = name
	}
	return names
}

// leafNames gives every leaf its packet name in the same way: models with sliding windows have two masks of one name.
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
