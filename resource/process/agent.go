package process

import (
	"encoding/json"
	"time"
)

// agentVersion is that of what both sides say.
const agentVersion = 1

// AgentHello is what an agent says of its host.
type AgentHello struct {
	Version    int      `json:"version"`
	Host       string   `json:"host"`
	Kernel     string   `json:"kernel,omitempty"`
	BootID     string   `json:"boot_id,omitempty"`
	Collectors []string `json:"collectors"` // that have lines
}

// AgentLine is a line of a host's collector, as the collector wrote it.
type AgentLine struct {
	Collector string          `json:"collector"`
	Line      json.RawMessage `json:"line"`
}

// greeting is what a run says first.
type greeting struct {
	Version int    `json:"version"`
	Token   string `json:"token"`
}

// question is what it says then.
type question struct {
	Ask string `json:"ask"` // clock or lines
}

// answer is what an agent answers.
type answer struct {
	Got   int64       `json:"got_mono_ns,omitempty"`  // on its CLOCK_MONOTONIC: when the question had come
	Left  int64       `json:"left_mono_ns,omitempty"` // when the answer was sent
	Lines []AgentLine `json:"lines,omitempty"`
	Error string      `json:"error,omitempty"`
}

// patience is how long a side waits for what the other one has to say.
const patience = 5 * time.Second

// The longest line of each side, in bytes.
const (
	mostAsked    = 4 << 10
	mostAnswered = 64 << 20
)
