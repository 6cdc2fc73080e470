package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// HostCollectors are the collectors of --tap-host.
var HostCollectors = []string{"block", "system", "waits", "prof"}

// The bounds of --tap-host-interval.
const (
	defaultHostInterval = time.Second
	minHostInterval     = 50 * time.Millisecond
)

func hostOptions() []option {
	return []option{
		{name: "host", form: "LIST", recorder: Host,
			help: "record what the kernel does during the run: block (I/O of disks), system (faults, waiting, pressure), waits (faults and reads by file, tensor and token), prof (system calls, network), or all",
			set:  setHost,
			get:  func(t *Tap) any { return text(strings.Join(t.Host, ",")) }},
		{name: "host-interval", form: "DURATION", role: roleModifier, recorder: Host,
			byDef: defaultHostInterval.String(),
			help:  "time between two lines of a host collector, such as 200ms",
			set:   setHostInterval,
			get:   func(t *Tap) any { return t.HostInterval.String() }},
		{name: "host-details", role: roleModifier, recorder: Host,
			help:  "with waits: write every single fault too, to host_faults.jsonl",
			onOff: func(t *Tap) *bool { return &t.HostDetails }},
	}
}

// parseHost reads a list of host collectors; they are returned in the order of HostCollectors.
func parseHost(s string) ([]string, error) {
	if s == "all" {
		return slices.Clone(HostCollectors), nil
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(s, ",") {
		name, err := oneOf("host collector", strings.TrimSpace(name), append(slices.Clone(HostCollectors), "all"))
		if err != nil {
			return nil, err
		}
		if name == "all" {
			return slices.Clone(HostCollectors), nil
		}
		wanted[name] = true
	}
	var list []string
	for _, name := range HostCollectors {
		if wanted[name] {
			list = append(list, name)
		}
	}
	return list, nil
}

func setHost(t *Tap, s string) (err error) {
	t.Host, err = parseHost(s)
	return err
}

func setHostInterval(t *Tap, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < minHostInterval {
		return fmt.Errorf("host interval %q: write a time from %v on, such as 200ms, 1s or 5s", s, minHostInterval)
	}
	t.HostInterval = d
	return nil
}
