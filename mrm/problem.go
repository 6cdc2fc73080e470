package mrm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// place is the position of something in a file, both from 1; 0 is the file as a whole.
type place struct{ line, column int }

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Line, Column  int // from 1; 0: the file as a whole
	Cause, Remedy string
}

// Problems are what is wrong with a configuration, in the order of its lines. As an error they have a line each:
// file:line:column: cause; remedy.
type Problems struct {
	File   string
	All    []Problem
	places map[string]place // of keys, such as model[1].path
}

// Error is all of them.
func (p *Problems) Error() string {
	lines := make([]string, len(p.All))
	for i, problem := range p.All {
		where := p.File
		if problem.Line > 0 {
			where = fmt.Sprintf("%s:%d:%d", p.File, problem.Line, problem.Column)
		}
		lines[i] = fmt.Sprintf("%s: %s; %s", where, problem.Cause, problem.Remedy)
	}
	return strings.Join(lines, "\n")
}

// most bounds how many problems are reported.
const most = 50

// add records a problem at the first of some keys that the file has.
func (p *Problems) add(cause, remedy string, keys ...string) {
	var at place
	for _, key := range keys {
		if found, ok := p.places[key]; ok {
			at = found
			break
		}
	}
	p.addAt(at, cause, remedy)
}

func (p *Problems) addAt(at place, cause, remedy string) {
	p.All = append(p.All, Problem{at.line, at.column, clip(cause), clip(remedy)})
}

// clip makes a text one line of at most 400 bytes.
func clip(s string) string { return clipTo(s, 400) }

// clipTo makes a text one line of some length.
func clipTo(s string, longest int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// error is nil where there are none.
func (p *Problems) error() error {
	if len(p.All) == 0 {
		return nil
	}
	slices.SortStableFunc(p.All, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	p.All = p.All[:min(len(p.All), most)]
	return p
}
