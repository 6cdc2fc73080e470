package export

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
)

// ErrNoBlocks occurs when a run's requests lack the hashes of their prompts.
var ErrNoBlocks = errors.New("no request has hashes of its prompt")

// Mooncake writes the requests of a run as a Mooncake trace ([kvcache.TraceRequest]), by when they arrived, or, where
// that is not known, got their slot. Its result has the number of requests, and in notes what is left out.
func Mooncake(ctx context.Context, dir string, out io.Writer) (*Result, error) {
	requests, err := resources.OpenRequests(ctx, dir)
	if err != nil {
		return nil, err
	}
	began := func(q *kvcache.Request) int64 { return cmp.Or(q.ArrivalNS, q.LaunchNS, q.PromptNS) }
	known := slices.DeleteFunc(slices.Clone(requests.All), func(q kvcache.Request) bool {
		return began(&q) == 0 || q.Prompt < 1 || int64(len(q.Blocks)-1) != (q.Prompt-1)/kvcache.TraceBlock
	})
	if len(known) == 0 && len(requests.All) > 0 {
		return nil, fmt.Errorf("%s: %w: record with --tap-requests of this version", dir, ErrNoBlocks)
	}
	slices.SortStableFunc(known, func(a, b kvcache.Request) int { return cmp.Compare(began(&a), began(&b)) })
	r := &Result{Rows: int64(len(known))}
	buffered := bufio.NewWriter(out)
	lines, ids, late := json.NewEncoder(buffered), map[uint64]int64{}, 0
	for i := range known {
		q := &known[i]
		line := kvcache.TraceRequest{Input: q.Prompt, Output: max(q.Output, 0)}
		line.TimeMS = float64((began(q) - began(&known[0])) / 1e6)
		for _, hash := range q.Blocks {
			id, ok := ids[hash]
			if !ok {
				id = int64(len(ids))
				ids[hash] = id
			}
			line.IDs = append(line.IDs, id)
		}
		if err := lines.Encode(line); err != nil {
			return nil, err
		}
		if q.ArrivalNS == 0 {
			late++
		}
	}
	if n := len(requests.All) - len(known); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf(
			"left out: %s that ended within the prompt, or whose prompt is not known", present.Plural(n, "request")))
	}
	if late > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf(
			"%s with the time of getting a slot: the arrival is not known", present.Plural(late, "request")))
	}
	if requests.Cut {
		r.Notes = append(r.Notes, "the table of requests was not completed: the newest requests are missing")
	}
	return r, buffered.Flush()
}
