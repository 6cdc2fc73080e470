package capture

import (
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// namer gives captured nodes of one context their packet names: the node's name, or that of the view that stands for it, for the first
// node of that name that the run captures; NAME#2, NAME#3 for further ones. A node keeps its name in every graph, whatever else of its
// name a selection wants: a packet name means one (name, op, occurrence) of the run. A node that llama.cpp left unnamed is called by
// its number in the graph (node_24), and means that number alone.
type namer struct {
	names map[identity]string
	given map[string]int // how many nodes share a name
}

// identity is a node as it can be found again in another graph.
type identity struct {
	name, op   string
	occurrence int  // among the nodes of that name and op
	alias      bool // name is that of a view, occurrence counts the nodes that go by it
}

func newNamer() *namer { return &namer{names: map[identity]string{}, given: map[string]int{}} }

// packetNames returns the packet name of each node of a graph; "" for one that is not captured.
func (m *namer) packetNames(g *ggmlhooks.Graph) []string {
	names := make([]string, len(g.Nodes))
	aliased := map[identity]int{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		id := identity{name: n.Name, op: n.Op, occurrence: n.Occurrence}
		if n.Alias >= 0 && n.Alias < len(g.Nodes) {
			id = identity{name: g.Nodes[n.Alias].Name, op: n.Op, alias: true}
			aliased[id]++
			id.occurrence = aliased[id]
		}
		switch {
		case !n.Wanted:
		case unnamed(id.name):
			names[i] = id.name
		default:
			names[i] = m.name(id)
		}
	}
	return names
}

func (m *namer) name(id identity) string {
	name, ok := m.names[id]
	if !ok {
		name = id.name
		m.given[id.name]++
		if k := m.given[id.name]; k > 1 {
			name += "#" + strconv.Itoa(k)
		}
		m.names[id] = name
	}
	return name
}

// unnamed tells whether a name is ggml's own for a node without one: node_24.
func unnamed(name string) bool {
	number, ok := strings.CutPrefix(name, "node_")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// leafNames gives every leaf its packet name, whether it is captured or not, counting those of one name in graph order: models with sliding windows have two masks of one name.
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
