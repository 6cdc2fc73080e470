package ggmlhooks

import "strings"

// MatchTensor reports whether a tensor glob of a [Selection] means a node of that name: *, ? and [set] as cgo/tap matches them, against
// the whole name, or the name without its layer suffix.
func MatchTensor(glob, name string) bool {
	if matchGlob(glob, name) {
		return true
	}
	base, layer, ok := cutLast(name, '-')
	return ok && layer != "" && strings.Trim(layer, "0123456789") == "" && matchGlob(glob, base)
}

func cutLast(s string, c byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, c); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
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

// matchSet matches c with the set that a pattern begins with, and returns how long the set is. One that does not end is as long as the pattern.
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
