package experts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
)

// ErrNone occurs when a run has no record of chosen experts.
var ErrNone = errors.New("no choice of experts is recorded")

// maxExperts bounds the experts of a layer, maxLayers the layers, maxUses the uses that are kept, of 2 bytes each.
const (
	maxExperts = 1 << 12
	maxLayers  = 1 << 12
	maxUses    = 1 << 28
)

// Each calls f with each recorded choice, in the order of the log. What it is called with is used again. lost is the
// number of events of choices that the log says were not recorded. Lines that cannot be read are passed over.
func Each(ctx context.Context, path string, f func(*resource.Routing) error) (lost uint64, err error) {
	var e resource.Routing
	n := 0
	err = resources.EachEvent(ctx, path, func(kind resource.Kind, text []byte) error {
		switch kind {
		case resource.KindLoss:
			var loss resource.Loss
			if json.Unmarshal(text, &loss) == nil && loss.Kind == resource.KindRouting.String() {
				lost += loss.Count
			}
		case resource.KindRouting:
			e = resource.Routing{Experts: e.Experts[:0], Weights: e.Weights[:0]}
			if json.Unmarshal(text, &e) == nil && valid(&e) {
				n++
				return f(&e)
			}
		}
		return nil
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: %w: record a model that has experts with --tap-resource-level DETAILED", path, ErrNone)
	}
	return lost, err
}

// valid reports whether numbers are such that memory can be given by them.
func valid(e *resource.Routing) bool {
	for _, x := range e.Experts {
		if x < 0 || x >= maxExperts {
			return false
		}
	}
	return e.LayerID >= 0 && e.LayerID < maxLayers && len(e.Experts) > 0
}
