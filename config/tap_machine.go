package config

import (
	"fmt"
	"strconv"
	"strings"
)

// The levels of --tap-resource-level. resource.Level has the same names.
var resourceLevels = []string{"MINIMAL", "DETAILED", "VERBOSE"}

// The bounds of --tap-kv-block.
const (
	DefaultKVBlock = 32
	MaxKVBlock     = 1 << 20
)

// The environment variables of LLaMA Resource Instrumentation, which mean the same here.
const (
	envResourceLevel    = "LLAMA_RESOURCE_LOG_LEVEL"
	envResourcePath     = "LLAMA_RESOURCE_LOG_PATH"
	envResourceDisabled = "LLAMA_RESOURCE_DISABLED"
)

func machineOptions() []option {
	return []option{
		{name: "resource-level", form: "LEVEL", alias: envResourceLevel, recorder: Resource,
			help: "record what memory and computing cost, to resource.jsonl: MINIMAL (per graph and matrix product, no callback), DETAILED (per layer and component), VERBOSE (per operation)",
			set:  setResourceLevel,
			get:  func(t *Tap) any { return text(t.ResourceLevel) }},
		{name: "kv", form: "[=on|off]", bare: "on", follows: isSwitchWord, recorder: KV,
			help: "record the life of every block of the KV cache, to kv_block_lifecycle.parquet",
			set:  setKV,
			get:  func(t *Tap) any { return onOff(t.KV) }},
		{name: "regions", form: "[=on|off]", bare: "on", follows: isSwitchWord, recorder: Regions,
			help: "record what lies where in memory (weights, caches, activations) and how operations used it, to region_map.parquet",
			set: func(t *Tap, s string) (err error) {
				t.Regions, err = parseSwitch("regions", s)
				return err
			},
			get: func(t *Tap) any { return onOff(t.Regions) }},
		{name: "resource-path", form: "FILE", alias: envResourcePath, role: roleModifier, recorder: Resource,
			help: "append the events to this file too",
			set:  func(t *Tap, s string) error { t.ResourcePath = s; return nil },
			get:  func(t *Tap) any { return text(t.ResourcePath) }},
		{name: "resource-rate", form: "N", role: roleModifier, recorder: Resource, byDef: "0",
			help: "most events of a kind per second; those beyond are counted and not written. 0: no limit",
			set:  setResourceRate,
			get:  func(t *Tap) any { return t.ResourceRate }},
		{name: "resource-rotate", form: "SIZE", role: roleModifier, recorder: Resource, byDef: "0",
			help: "begin a new file of events when one has this size, such as 256M; 0: never",
			set:  setResourceRotate,
			get:  func(t *Tap) any { return t.ResourceRotate }},
		{name: "legacy-estimates", form: "[=on|off]", bare: "on", follows: isSwitchWord, role: roleModifier, recorder: Resource,
			help: "alongside what is measured, write what LLaMA Resource Instrumentation would have estimated, marked as estimated",
			set: func(t *Tap, s string) (err error) {
				t.Legacy, err = parseSwitch("legacy-estimates", s)
				return err
			},
			get: func(t *Tap) any { return onOff(t.Legacy) }},
		{name: "kv-block", form: "N", role: roleModifier, recorder: KV, byDef: strconv.Itoa(DefaultKVBlock),
			help: "cells of a block of the KV cache; 1 follows each cell",
			set:  setKVBlock,
			get:  func(t *Tap) any { return t.KVBlock }},
	}
}

func isSwitchWord(next string) bool { return next == "on" || next == "off" }

func onOff(on bool) any {
	if on {
		return "on"
	}
	return nil
}

func parseSwitch(name, s string) (bool, error) {
	word, err := oneOf(name, s, []string{"on", "off", "true", "false", "1", "0"})
	return word == "on" || word == "true" || word == "1", err
}

func setKV(t *Tap, s string) (err error) {
	t.KV, err = parseSwitch("kv", s)
	return err
}

func setResourceLevel(t *Tap, s string) error {
	level, err := oneOf("resource level", strings.ToUpper(s), resourceLevels)
	t.ResourceLevel = level
	return err
}

func setResourceRate(t *Tap, s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return fmt.Errorf("resource rate %q: write events per second, such as 10000, or 0 for no limit", s)
	}
	t.ResourceRate = int(n)
	return nil
}

func setResourceRotate(t *Tap, s string) error {
	if s == "0" {
		t.ResourceRotate = 0
		return nil
	}
	size, err := ParseBytes(s)
	if err == nil && size < 1<<20 {
		err = fmt.Errorf("resource rotate %q: give at least 1M, or 0 for one file", s)
	}
	t.ResourceRotate = size
	return err
}

func setKVBlock(t *Tap, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxKVBlock {
		return fmt.Errorf("kv block %q: write a number of cells from 1 to %d", s, MaxKVBlock)
	}
	t.KVBlock = n
	return nil
}

// checkModifiers refuses flags that change a recorder which does not run.
func (t *Tap) checkModifiers(s *sources) error {
	for i := range tapOptions {
		o := &tapOptions[i]
		g, given := s[FromFlag][o.name]
		if !given || o.role != roleModifier || o.recorder == "" || t.Records(o.recorder) || o.name == "kv-block" && (t.Records(Ledger) || t.Records(Samples)) {
			continue
		}
		return fmt.Errorf("%s changes how %s are recorded, and nothing of it is: add one of %s, or drop it",
			g.where, recorderWhat[o.recorder], strings.Join(recorderFlags(o.recorder), ", "))
	}
	return nil
}

var recorderWhat = map[Recorder]string{
	Activations: "tensors", Resource: "events of resource use", KV: "blocks of the KV cache",
	Regions: "regions of memory", Ledger: "accesses of operations", Samples: "accesses to memory", Host: "what the kernel does",
}

// checkMachine: a resumed run compares its stream alone. Events and the lives of blocks are recorded
// anew from its beginning, which must be computed again for that; what cannot be had again is refused.
func (t *Tap) checkMachine() error {
	which := ""
	for _, other := range []struct {
		recorder Recorder
		option   string
	}{{Resource, "resource-level"}, {KV, "kv"}, {Regions, "regions"}, {Ledger, "ledger"}, {Samples, "samples"}, {Host, "host"}} {
		if t.Records(other.recorder) {
			which = other.option
		}
	}
	if which == "" {
		return nil
	}
	repeated := t.Checkpoint.Every > 0 || t.Resume != ""
	switch {
	case repeated && t.Records(Ledger):
		return fmt.Errorf("%s is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-ledger, or the checkpoints",
			t.origins["ledger"].where)
	case repeated && t.Records(Samples):
		return fmt.Errorf("%s is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-samples, or the checkpoints",
			t.origins["samples"].where)
	case repeated && t.Records(Regions):
		return fmt.Errorf("%s is not recorded in a run with checkpoints, which resumes its stream alone: drop --tap-regions, or the checkpoints",
			t.origins["regions"].where)
	case t.Checkpoint.State:
		return fmt.Errorf("%s: --tap-%s needs the whole run, and a run that is resumed from a kept state does not recompute its beginning: drop one of the two",
			t.origins["checkpoint-state"].where, which)
	case repeated && t.ResourcePath != "":
		return fmt.Errorf("%s would get the events of a resumed run twice: read them in the run directory (resource.jsonl), or drop the checkpoints",
			t.origins["resource-path"].where)
	}
	if !t.Records(Activations) && t.Sink != "" {
		return fmt.Errorf("%s hands captured tensors on, and none are captured: add a recorder of tensors, such as --tap-preset balanced, or drop it", t.origins["sink"].where)
	}
	return nil
}
