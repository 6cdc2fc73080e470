package tensors

import (
	"path"
	"strings"
)

// matchName reports whether a glob means a packet: by the packet's name, by the node's, or by the node's without its layer suffix.
func matchName(glob, name, node string) bool {
	for _, candidate := range []string{name, node, withoutLayer(node)} {
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
