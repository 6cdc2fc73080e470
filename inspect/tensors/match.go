package tensors

import (
	"path"
	"strings"
)

// matchName reports whether a glob means a packet: by the packet's name or the node's, with the layer suffix or
// without. A glob with a # means one of the nodes of a name: Qcur-0#1 and Qcur#1 are the first.
func matchName(glob, name, node string) bool {
	candidates := []string{name, node, withoutLayer(node)}
	if strings.Contains(glob, "#") {
		if !strings.Contains(name, "#") {
			name += "#1"
		}
		candidates = append(candidates, name, generalName(name, node))
	}
	for _, candidate := range candidates {
		if ok, _ := path.Match(glob, candidate); ok {
			return true
		}
	}
	return false
}

// withoutLayer cuts the layer suffix off a node's name: l_out-3 becomes l_out.
func withoutLayer(node string) string {
	dash := strings.LastIndexByte(node, '-')
	if dash < 0 || dash == len(node)-1 || strings.Trim(node[dash+1:], "0123456789") != "" {
		return node
	}
	return node[:dash]
}
