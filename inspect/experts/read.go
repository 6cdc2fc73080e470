package experts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
	tail, err := resources.OpenTail(path)
	if err != nil {
		return 0, err
	}
	defer tail.Close()
	tail.Going, tail.Done = func() bool { return false }, ctx.Done()
	var e resource.Routing
	n := 0
	for {
		line, err := tail.Next()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, resources.ErrWaiting):
			if n == 0 {
				err = fmt.Errorf("%s: %w: record a model that has experts with --tap-resource-level DETAILED", path,
					ErrNone)
			} else {
				err = nil
			}
			return lost, err
		case err != nil:
			return lost, fmt.Errorf("read events of %s: %w", path, err)
		case line.Err != nil:
			continue
		}
		switch kind, _ := resources.KindOf(line.Text); kind {
		case resource.KindLoss:
			var loss resource.Loss
			if json.Unmarshal(line.Text, &loss) == nil && loss.Kind == resource.KindRouting.String() {
				lost += loss.Count
			}
		case resource.KindRouting:
			e = resource.Routing{Experts: e.Experts[:0], Weights: e.Weights[:0]}
			if json.Unmarshal(line.Text, &e) != nil || !valid(&e) {
				continue
			}
			if err := f(&e); err != nil {
				return lost, err
			}
			n++
		}
	}
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
