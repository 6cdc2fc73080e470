package ggmlhooks

import (
	"strconv"
	"strings"
)

// MatchTensor reports whether a tensor glob of a [Selection] means node i, as cgo/tap decides it. A glob (*, ? and
// [set]) is matched against the node's whole name, and the name without its layer suffix; one with a # also against
// the name that the node's packets bear, always with its number: Qcur-0#1, Qcur-0#2.
func (g *Graph) MatchTensor(glob string, i int) bool {
	if matchGlob(glob, g.Nodes[i].Name) || matchGlob(glob, WithoutLayer(g.Nodes[i].Name)) {
		return true
	}
	if !strings.Contains(glob, "#") {
		return false
	}
	name, number := g.shownName(i), "#"+strconv.Itoa(max(g.Nodes[i].Number, 1))
	return matchGlob(glob, name+number) || matchGlob(glob, WithoutLayer(name)+number)
}

// WithoutLayer cuts the layer suffix off the name of a node or of its packets: l_out-3 becomes l_out, and Qcur-0#2
// Qcur#2.
func WithoutLayer(name string) string {
	base, number := name, ""
	if at := strings.LastIndexByte(name, '#'); at > 0 {
		base, number = name[:at], name[at:]
	}
	at := strings.LastIndexByte(base, '-')
	if at < 0 || at == len(base)-1 || strings.Trim(base[at+1:], "0123456789") != "" {
		return name
	}
	return base[:at] + number
}

// matchGlob goes back to the last star where it must.
func matchGlob(glob, text string) bool {
	star, starAt, p, at := -1, 0, 0, 0
	for {
		switch rest := glob[p:]; {
		case strings.HasPrefix(rest, "*"):
			p++
			star, starAt = p, at
			continue
		case at == len(text):
			if rest == "" {
				return true
			}
		case strings.HasPrefix(rest, "["):
			if hit, n := matchSet(rest, text[at]); hit {
				p, at = p+n, at+1
				continue
			}
		case rest != "" && (rest[0] == '?' || rest[0] == text[at]):
			p, at = p+1, at+1
			continue
		}
		if star < 0 || starAt >= len(text) {
			return false
		}
		starAt++
		p, at = star, starAt
	}
}

// matchSet matches c with the set that a pattern begins with, and returns how long the set is. One that does not
// end is as long as the pattern.
func matchSet(pattern string, c byte) (hit bool, n int) {
	i := 1
	not := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if not {
		i++
	}
	for first := true; i < len(pattern) && (first || pattern[i] != ']'); first = false {
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			hit = hit || pattern[i] <= c && c <= pattern[i+2]
			i += 3
		} else {
			hit = hit || pattern[i] == c
			i++
		}
	}
	return hit != not, min(i+1, len(pattern))
}
