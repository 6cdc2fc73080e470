package config

import (
	"fmt"
	"math"
	"os"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Dataset configures a training dataset: captured rows are written to shuffled shards instead of the run's stream.
type Dataset struct {
	Dir     string // "": into the stream
	ShardMB int64  // size of a shard's elements as float32, in 10⁶ bytes; 0: the export's
	Window  int64  // tokens that are shuffled together; 0: what is usual
	Seed    uint64
}

func datasetOptions() []option {
	const atLeastOne = "%q: give a number, at least 1"
	seed := whole(func(t *Tap) *uint64 { return &t.Dataset.Seed }, 0, math.MaxUint64,
		"dataset-seed %q: give a whole number")
	seed.get = func(t *Tap) any { // nothing for 0: runs recorded before there were datasets have none, and are resumed
		if t.Dataset.Seed == 0 {
			return nil
		}
		return t.Dataset.Seed
	}
	return []option{
		{name: "dataset", form: "DIR", modifies: Activations,
			help: "write the rows of captured tensors into shuffled shards for datasets.load_dataset, in place of " +
				"the run's stream, as export --to dataset --shuffle-window does",
			field: plain(func(t *Tap) *string { return &t.Dataset.Dir })},
		{name: "dataset-shard-mb", form: "MB", modifies: Activations, byDef: "256",
			help:  "size of a shard before compression",
			field: whole(func(t *Tap) *int64 { return &t.Dataset.ShardMB }, 1, math.MaxInt64, atLeastOne)},
		{name: "dataset-window", form: "TOKENS", modifies: Activations, byDef: "131072",
			help:  "tokens that are shuffled together; their rows wait on the disk beside the shards",
			field: whole(func(t *Tap) *int64 { return &t.Dataset.Window }, 1, math.MaxInt64, atLeastOne)},
		{name: "dataset-seed", form: "N", modifies: Activations, byDef: "0", help: "seed of the shuffle",
			field: seed},
	}
}

// dataset refuses what a dataset cannot hold, and what needs the stream.
func (c checker) dataset() error {
	if c.tap.Dataset.Dir == "" {
		for _, name := range []string{"dataset-shard-mb", "dataset-window", "dataset-seed"} {
			if _, g, ok := c.given.top(name); ok {
				return fmt.Errorf("%s is for --tap-dataset: add it, or drop this", g.where)
			}
		}
		return nil
	}
	where := c.tap.origins["dataset"].where
	if _, err := os.Lstat(c.tap.Dataset.Dir); err == nil {
		return fmt.Errorf("%s %s: it is there already: choose another place, or remove it", where, c.tap.Dataset.Dir)
	}
	_, codec, packed := c.given.top("codec")
	switch {
	case !c.tap.Records(Activations):
		return fmt.Errorf("%s: no tensors are captured: add --tap-point resid_post, or drop it", where)
	case c.tap.Granularity == ggmlhooks.SampledSlices:
		return fmt.Errorf("%s: samples have no rows: drop --tap-granularity sampled_slices", where)
	case packed:
		return fmt.Errorf("%s: shards have a codec of their own: drop %s", where, codec.where)
	case c.tap.Overflow == OverflowDrop:
		return fmt.Errorf("%s: every token needs all of its tensors: drop --tap-overflow drop", where)
	case c.tap.Segments() != Segment{}, c.tap.Sink != "", c.tap.Checkpoint.Every > 0, c.tap.Resume != "":
		return fmt.Errorf(
			"%s takes the place of the run's stream: drop segments, rotation, --tap-sink and checkpoints", where)
	}
	return nil
}
