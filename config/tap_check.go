package config

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// checker refuses settings that contradict each other, or nothing.
type checker struct {
	tap   *Tap     // filled in
	given *sources // what was given, by source
}

func (c checker) check() error {
	if !c.tap.Recording() {
		return checkNothing(c.given)
	}
	for _, refuse := range []func() error{
		c.sampling, c.codec, c.attention, func() error { return checkPoints(c) }, c.disk, c.checkpoint, c.modifiers,
		c.regions, c.intervals, c.events, c.repeated, c.sink, c.dataset, c.memory, c.sample,
	} {
		if err := refuse(); err != nil {
			return err
		}
	}
	return nil
}

// checkNothing refuses flags that record nothing by themselves. The environment and a file that it names may hold
// standing settings for the runs that record; they must not get in the way of those that do not, nor may flags that
// switch their recorders off.
func checkNothing(s *sources) error {
	var alone []string
	onlyOff := true
	for i := range tapOptions {
		source, g, ok := s.top(tapOptions[i].name)
		if ok {
			alone = append(alone, g.where)
		}
		onlyOff = onlyOff && (source != FromFlag || isOff(tapOptions[i].name, g.text))
	}
	if onlyOff || s.has("resume") { // a run to resume has recorders of its own
		return nil
	}
	verb := "records"
	if len(alone) > 1 {
		verb = "record"
	}
	return fmt.Errorf("%s %s nothing without a recorder: add one of %s",
		strings.Join(alone, ", "), verb, strings.Join(recorderFlags(""), ", "))
}

func (c checker) sampling() error {
	if c.tap.Granularity == ggmlhooks.SampledSlices {
		return nil
	}
	for _, name := range []string{"sampling-rate", "seed"} {
		if _, g, ok := c.given.top(name); ok {
			return fmt.Errorf(
				"%s works on sampled_slices only, and the granularity is %v (%s): add --tap-granularity "+
					"sampled_slices, or drop it",
				g.where, c.tap.Granularity, c.tap.origins["granularity"].where)
		}
	}
	return nil
}

// codec: what bounds an error needs a codec that makes one, and such a codec takes F32 as it is.
func (c checker) codec() error {
	bounded := c.tap.Codec == "q" || c.tap.Codec == "q-fse"
	for _, name := range []string{"error", "error-metric"} {
		if _, g, ok := c.given.top(name); ok && !bounded {
			return fmt.Errorf(
				"%s works with the codecs q and q-fse only, and the codec is %s (%s): add --tap-codec q, or drop it",
				g.where, c.tap.Codec, c.tap.origins["codec"].where)
		}
	}
	if _, g, ok := c.given.top("dtype"); ok && bounded {
		return fmt.Errorf(
			"%s and codec %s (%s) contradict each other, because that codec decides how F32 is stored: add "+
				"--tap-codec lz4, or drop %s",
			g.where, c.tap.Codec, c.tap.origins["codec"].where, g.where)
	}
	return nil
}

func (c checker) attention() error {
	if c.tap.Attention == ggmlhooks.AttentionNone {
		return nil
	}
	attention, granularity := c.tap.origins["attention"].where, c.tap.origins["granularity"].where
	switch c.tap.Granularity {
	case ggmlhooks.MLPOnly:
		return fmt.Errorf("%s and mlp_only (%s) contradict each other: drop one, or take --tap-granularity full_tensor",
			attention, granularity)
	case ggmlhooks.SampledSlices:
		return fmt.Errorf("%s needs whole rows of Q and K, and sampled_slices (%s) keeps a share: drop one", attention,
			granularity)
	}
	return nil
}

// points refuses a point of a layer that the list of layers leaves out.
func checkPoints(c checker) error {
	selection := c.tap.Selection()
	ref := selection.OutsideLayers()
	if ref == nil {
		return nil
	}
	layers := c.tap.origins["layers"].where
	return fmt.Errorf("%s asks for %s, and %s leaves layer %d out: name the point without a layer, or drop %s",
		c.tap.origins["points"].where, ref, layers, ref.Layer, layers)
}

// disk refuses segments of which a bound that rotates does not hold two: the one that is written, and one that
// can go.
func (c checker) disk() error {
	if c.tap.MaxDisk.Action == DiskRotate && c.tap.Segment.Bytes > c.tap.MaxDisk.Bytes/2 {
		return fmt.Errorf(
			"%s asks for segments of %v, and %s for rotation within %v: give segments of at most half of it, or :stop",
			c.tap.origins["segment"].where, c.tap.Segment.Bytes, c.tap.origins["max-disk"].where, c.tap.MaxDisk.Bytes)
	}
	return nil
}

// checkpoint refuses what cannot be: a file for checkpoints that nobody makes, and checkpoints of what cannot
// be repeated.
func (c checker) checkpoint() error {
	switch {
	case c.tap.Checkpoint.Path != "" && c.tap.Checkpoint.Every == 0:
		return fmt.Errorf("%s names a file for checkpoints, and there are none: add --tap-checkpoint-every N",
			c.tap.origins["checkpoint-path"].where)
	case c.tap.Checkpoint.State && c.tap.Checkpoint.Every == 0:
		return fmt.Errorf("%s is about checkpoints, and there are none: add --tap-checkpoint-every N",
			c.tap.origins["checkpoint-state"].where)
	case c.tap.Checkpoint.State && c.tap.Records(Steering):
		return fmt.Errorf("%s: a saved state does not hold by which vectors it was computed: leave it out, or %s",
			c.tap.origins["checkpoint-state"].where, c.tap.origins["steer"].where)
	case c.tap.Checkpoint.Every == 0:
		return nil
	case c.tap.Overflow == OverflowDrop:
		return fmt.Errorf("%s: a run that may drop tensors cannot be resumed as it was: use --tap-overflow block",
			c.tap.origins["checkpoint-every"].where)
	case c.tap.Segments() != Segment{}:
		return fmt.Errorf(
			"%s: a run in segments is not resumed, its sealed segments are results: leave out --tap-segment and "+
				"rotation, or the checkpoints", c.tap.origins["checkpoint-every"].where)
	}
	return nil
}

// modifiers refuses flags that change a recorder which does not run.
func (c checker) modifiers() error {
	for i := range tapOptions {
		o := &tapOptions[i]
		g, given := c.given[FromFlag][o.name]
		if !given || o.role != roleModifier || o.recorder == "" || c.tap.Records(o.recorder) || o.name == "kv-block" &&
			(c.tap.Records(Ledger) || c.tap.Records(Samples)) {
			continue
		}
		return fmt.Errorf("%s changes how %s are recorded, and nothing of it is: add one of %s, or drop it",
			g.where, recorderWhat[o.recorder], strings.Join(recorderFlags(o.recorder), ", "))
	}
	return nil
}

var recorderWhat = map[Recorder]string{
	Activations: "tensors", Resource: "events of resource use", KV: "blocks of the KV cache",
	Regions: "regions of memory", Ledger: "accesses of operations", Samples: "accesses to memory",
	Host: "what the kernel does", Steering: "vectors", Requests: "requests",
}

// intervals refuses an interval and a period that nothing has.
func (c checker) intervals() error {
	if g, given := c.given[FromFlag]["samples-period"]; given && c.tap.Records(Samples) && !c.tap.SamplesWith("perf") {
		return fmt.Errorf(
			"%s is the period of perf, and --tap-samples does not name it: write --tap-samples perf:faults, or drop it",
			g.where)
	}
	if g, given := c.given[FromFlag]["process-interval"]; given && !c.tap.MonitorsProcess() {
		return fmt.Errorf(
			"%s is the interval of process.jsonl, and nothing writes it: add --tap-ledger or --tap-samples, or drop it",
			g.where)
	}
	return nil
}

// events refuses to shape KV events that go nowhere.
func (c checker) events() error {
	for _, name := range []string{"replay", "topic", "block", "seed", "format"} {
		if g, given := c.given[FromFlag]["kv-events-"+name]; given && c.tap.KVEvents.Endpoint == "" {
			return fmt.Errorf("%s is about KV events, and there are none: add --tap-kv-events ENDPOINT, or drop it",
				g.where)
		}
	}
	return nil
}

// ceilings lists the presets whose ceiling admits a size.
func ceilings(size Bytes) string {
	var names []string
	for _, p := range presets {
		if p.MemoryCeiling >= size {
			names = append(names, fmt.Sprintf("%s: %v", p.Name, p.MemoryCeiling))
		}
	}
	if len(names) == 0 {
		return "none has"
	}
	return strings.Join(names, ", ")
}

// regions refuses to leave out the map of memory that rows need.
func (c checker) regions() error {
	for _, r := range needRegions {
		if given, ok := c.tap.origins["regions"]; ok && c.tap.Records(r) && !c.tap.Regions {
			return fmt.Errorf(
				"%s leaves out the map of memory, whose regions the rows of --tap-%s name: drop one of the two",
				given.where, r)
		}
	}
	return nil
}

// repeated refuses what a resumed run cannot have again. It compares its stream alone; events and the lives of blocks
// are recorded anew from its beginning, which must be computed again for that.
func (c checker) repeated() error {
	if c.tap.Checkpoint.Every == 0 && c.tap.Resume == "" {
		return nil
	}
	for _, r := range []Recorder{Ledger, Samples, Regions, Requests} {
		if c.tap.Records(r) {
			name := string(r)
			if c.tap.origins[name].where == "" { // what exports requests records them, too
				name = "otlp"
			}
			return fmt.Errorf(
				"%s is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-%s, or the "+
					"checkpoints",
				c.tap.origins[name].where, name)
		}
	}
	which := ""
	for _, r := range []Recorder{Resource, KV, Host} {
		if c.tap.Records(r) {
			which = string(r)
		}
	}
	switch {
	case which == "":
		return nil
	case c.tap.Checkpoint.State:
		if which == string(Resource) {
			which = "resource-level"
		}
		return fmt.Errorf(
			"%s: --tap-%s needs the whole run, and a run that is resumed from a kept state does not recompute its "+
				"beginning: drop one of the two",
			c.tap.origins["checkpoint-state"].where, which)
	case c.tap.ResourcePath != "":
		return fmt.Errorf(
			"%s would get the events of a resumed run twice: read them in the run directory (resource.jsonl), or "+
				"drop the checkpoints",
			c.tap.origins["resource-path"].where)
	}
	return nil
}

// sink refuses a consumer that gets nothing.
func (c checker) sink() error {
	if !c.tap.Records(Activations) && c.tap.Sink != "" {
		return fmt.Errorf(
			"%s hands captured tensors on, and none are captured: add a recorder of tensors, such as --tap-preset "+
				"balanced, or drop it", c.tap.origins["sink"].where)
	}
	return nil
}

// memory refuses more than the preset allows.
func (c checker) memory() error {
	if c.tap.MemoryCeiling > 0 && c.tap.Memory > c.tap.MemoryCeiling {
		return fmt.Errorf(
			"%s asks for %v, and the ceiling of preset %s is %v: ask for less, or take a preset with a higher one (%s)",
			c.tap.origins["memory"].where, c.tap.Memory, c.tap.Preset, c.tap.MemoryCeiling, ceilings(c.tap.Memory))
	}
	return nil
}
