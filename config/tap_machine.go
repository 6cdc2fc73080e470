package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/kvcache"
)

// The levels of --tap-resource-level. resource.Level has the same names.
var resourceLevels = []string{"MINIMAL", "DETAILED", "VERBOSE"}

// autoSample chooses the executions that are timed by what timing costs.
const autoSample = "auto"

// The bounds of --tap-kv-block.
const (
	defaultKVBlock = 32
	maxKVBlock     = 1 << 20
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
			help: "record what memory and computing cost, to resource.jsonl: MINIMAL (per graph and matrix product, " +
				"no callback), DETAILED (per layer and component), VERBOSE (per operation)",
			field: parsed(func(t *Tap) *string { return &t.ResourceLevel }, func(s string) (string, error) {
				level := strings.ToUpper(s)
				if slices.Contains(resourceLevels, level) {
					return level, nil
				}
				return "", fmt.Errorf("unknown resource level %q: use %s, or leave it out to record no events", s,
					strings.Join(resourceLevels, ", "))
			})},
		{name: "kv", recorder: KV,
			help:  "record the life of every block of the KV cache, to kv_block_lifecycle.parquet",
			onOff: func(t *Tap) *bool { return &t.KV }},
		{name: "requests", recorder: Requests,
			help:  "record the requests of a server, with why prompts were processed again, to requests.parquet",
			onOff: func(t *Tap) *bool { return &t.Requests }},
		{name: "request-sample", form: "RULES", modifies: Requests,
			help: "keep the tensors and tokens of a sample of the requests, and give back segments in which it has " +
				"no part: 1/N (one in N), slower:TIME (arrival to end), errors, or several with commas. Each " +
				"request has its row",
			field: written(func(t *Tap) *[]SampleRule { return &t.RequestSample }, parseRequestSample, SampleText)},
		{name: "otlp", form: "URL|off", recorder: Requests,
			help: "record the requests of a server, and export each as a span, with metrics, to the OpenTelemetry " +
				"collector at this URL, such as http://localhost:4318 (OTLP over HTTP). Without it the environment " +
				"variables OTEL_EXPORTER_OTLP_… say where the requests of --tap-requests go",
			field: plain(func(t *Tap) *string { return &t.OTLP })},
		{name: "otlp-texts", form: "BYTES", modifies: Requests, byDef: "0",
			help: "export the text of each prompt and answer in its span, at most so many bytes of each; 0: none",
			field: whole(func(t *Tap) *int { return &t.OTLPTexts }, 0, maxOTLPTexts,
				"texts of %q bytes: write a number of bytes up to "+strconv.Itoa(maxOTLPTexts)+", or 0 for no texts")},
		{name: "regions", recorder: Regions,
			help: "record what lies where in memory (weights, caches, activations) and how operations used it, to " +
				"region_map.parquet",
			onOff: func(t *Tap) *bool { return &t.Regions }},
		{name: "resource-sample", form: "auto|N", modifies: Resource, byDef: "auto",
			help: "time the inside of one in N executions at DETAILED and VERBOSE; 1: of all. auto: of as many as " +
				"slow the model down by 3 % at most",
			field: field{setResourceSample, func(t *Tap) any {
				if t.ResourceSample == 0 {
					return autoSample
				}
				return t.ResourceSample
			}}},
		{name: "resource-path", form: "FILE", alias: envResourcePath, modifies: Resource,
			help:  "append the events to this file too",
			field: plain(func(t *Tap) *string { return &t.ResourcePath })},
		{name: "resource-rate", form: "N", modifies: Resource, byDef: "0",
			help: "most events of a kind per second; those beyond are counted and not written. 0: no limit",
			field: whole(func(t *Tap) *int { return &t.ResourceRate }, 0, math.MaxInt32,
				"resource rate %q: write events per second, such as 10000, or 0 for no limit")},
		{name: "resource-rotate", form: "SIZE", modifies: Resource, byDef: "0",
			help:  "begin a new file of events when one has this size, such as 256M; 0: never",
			field: parsed(func(t *Tap) *Bytes { return &t.ResourceRotate }, parseResourceRotate)},
		{name: "legacy-estimates", modifies: Resource,
			help: "alongside what is measured, write what LLaMA Resource Instrumentation would have estimated, " +
				"marked as estimated",
			onOff: func(t *Tap) *bool { return &t.Legacy }},
		{name: "kv-block", form: "N", modifies: KV, byDef: strconv.Itoa(defaultKVBlock),
			help: "cells of a block of the KV cache; 1 follows each cell",
			field: whole(func(t *Tap) *int { return &t.KVBlock }, 1, maxKVBlock,
				"kv block %q: write a number of cells from 1 to "+strconv.Itoa(maxKVBlock))},
	}
}

// KVEvents say where changes of which blocks a server's cache holds are published, and in which form.
type KVEvents struct {
	Endpoint, Replay string // "": nowhere
	Topic            string
	Block            int // tokens
	Seed             string
	Format           string
}

// eventOptions are those of KV events, with vLLM's defaults.
func eventOptions() []option {
	return []option{
		{name: "kv-events", form: "ENDPOINT", modifies: Requests,
			help: "publish which blocks of tokens the cache holds, as vLLM's KV events over ZeroMQ: " +
				"tcp://ADDRESS:PORT",
			field: parsed(func(t *Tap) *string { return &t.KVEvents.Endpoint }, parseEndpoint)},
		{name: "kv-events-replay", form: "ENDPOINT", modifies: Requests,
			help:  "where subscribers ask for events that they missed: tcp://ADDRESS:PORT",
			field: parsed(func(t *Tap) *string { return &t.KVEvents.Replay }, parseEndpoint)},
		{name: "kv-events-topic", form: "TEXT", modifies: Requests, help: "topic of the events",
			field: plain(func(t *Tap) *string { return &t.KVEvents.Topic })},
		{name: "kv-events-block", form: "N", modifies: Requests, byDef: "16", help: "tokens of a block",
			field: whole(func(t *Tap) *int { return &t.KVEvents.Block }, 1, maxKVBlock,
				"%q is not a number of tokens: give one from 1 to "+strconv.Itoa(maxKVBlock))},
		{name: "kv-events-seed", form: "TEXT", modifies: Requests, byDef: "0",
			help:  "what vLLM takes from PYTHONHASHSEED: begins the hashes of blocks",
			field: plain(func(t *Tap) *string { return &t.KVEvents.Seed })},
		{name: "kv-events-format", form: "map|array", modifies: Requests, byDef: "map",
			help:  "form of an event: map as current vLLM, array as vLLM before June 2026",
			field: choice(func(t *Tap) *string { return &t.KVEvents.Format }, "form of KV events", "map", "array")},
	}
}

func parseEndpoint(s string) (string, error) {
	_, _, err := kvcache.ParseEndpoint(s)
	return s, err
}

func setResourceSample(t *Tap, s string) error {
	if s == autoSample {
		t.ResourceSample = 0
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("resource sample %q: write auto, or N to time one in N executions, such as 1 for all", s)
	}
	t.ResourceSample = int(n)
	return nil
}

// maxOTLPTexts bounds texts in spans, of which thousands may wait for a collector.
const maxOTLPTexts = 16 << 10

func parseResourceRotate(s string) (Bytes, error) {
	if s == "0" {
		return 0, nil
	}
	size, err := ParseBytes(s)
	if err == nil && size < 1<<20 {
		err = fmt.Errorf("resource rotate %q: give at least 1M, or 0 for one file", s)
	}
	return size, err
}
