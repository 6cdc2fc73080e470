package tensors

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// Filter selects packets. The zero value selects all.
type Filter struct {
	Layer  *int    // only this layer; label.NoLayer for what belongs to none
	Tensor string  // glob on names, with or without layer suffix and occurrence; "" = all
	Ctx    *uint32 // only this context

	globs []string // only packets that one of these matches: see SelectPoints
}

// Check reports a glob that cannot be read.
func (f *Filter) Check() error {
	if _, err := path.Match(f.Tensor, ""); err != nil {
		return fmt.Errorf("tensor glob %q: a [ is not closed or a \\ ends it; use *, ? and [a-z]", f.Tensor)
	}
	return nil
}

// Match reports whether the filter selects the packet.
func (f *Filter) Match(p *stream.Packet) bool {
	switch {
	case f.Layer != nil && int(p.Layer) != *f.Layer:
		return false
	case f.Ctx != nil && p.Ctx != *f.Ctx:
		return false
	}
	matches := func(glob string) bool { return matchName(glob, p.Name, p.Node) }
	return (f.Tensor == "" || matches(f.Tensor)) && (len(f.globs) == 0 || slices.ContainsFunc(f.globs, matches))
}

// maxNames bounds how many names an error lists.
const maxNames = 40

// Unknown is the error for a filter that selects nothing: it says which names exist.
func (r *Run) Unknown(f Filter) error {
	seen := make(map[string]bool)
	var names []string
	unplaced := "" // a tensor whose layer is not known
	for _, p := range r.Stream.Packets() {
		if f.Layer != nil && int(p.Layer) != *f.Layer {
			if !r.KnowsLayer(p) && (unplaced == "" || strings.HasSuffix(p.Name, "-"+strconv.Itoa(*f.Layer))) {
				unplaced = p.Name
			}
			continue
		}
		if name := generalName(p.Name, p.Node); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	if err := r.Stream.Err(); err != nil {
		return fmt.Errorf("%s: %w", r.Path, err)
	}
	where := ""
	if f.Layer != nil {
		where = " in layer " + strconv.Itoa(*f.Layer)
	}
	if len(names) == 0 && unplaced != "" {
		return fmt.Errorf("%s: nothing is known to be%s: of tensors without the index that was recorded with them the "+
			"layer is not known: leave the layer out and choose them by name, such as %s", r.Path, where, unplaced)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: nothing is captured%s: 'llamatap inspect %s' shows what is", r.Path, where, r.Path)
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxNames {
		more = fmt.Sprintf(" and %d more", len(names)-maxNames)
		names = names[:maxNames]
	}
	what := "nothing matches"
	switch {
	case f.Ctx != nil && slices.Contains(names, ggmlhooks.WithoutLayer(f.Tensor)):
		return fmt.Errorf("%s: context %d has no tensor %q%s: 'llamatap inspect %s' shows which contexts there are",
			r.Path,
			*f.Ctx, f.Tensor, where, r.Path)
	case slices.Contains(names, f.Tensor):
		return fmt.Errorf("%s: %q is a tensor of several layers: choose one, as in %q, or all with %q", r.Path,
			f.Tensor,
			f.Tensor+"-0", f.Tensor+"-*")
	case f.Tensor != "":
		what = fmt.Sprintf("no tensor %q%s", f.Tensor, where)
	}
	return fmt.Errorf("%s: %s: there are %s%s", r.Path, what, strings.Join(names, ", "), more)
}

// KnowsLayer reports whether the index says of which layer a packet is, or that it is of none.
func (r *Run) KnowsLayer(p *stream.Packet) bool {
	return p.Layer != label.NoLayer || !p.Rebuilt && r.Kind != KindForeign
}

// generalName is a packet's name without its layer: Qcur#2 for Qcur-0#2.
func generalName(name, node string) string {
	if node == "" || !strings.HasPrefix(name, node) {
		return ggmlhooks.WithoutLayer(name)
	}
	return ggmlhooks.WithoutLayer(node) + name[len(node):]
}
