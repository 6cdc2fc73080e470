package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
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
			help: "record what the kernel does during the run: block (I/O of disks), system (faults, waiting, " +
				"pressure), waits (faults and reads by file, tensor and token), prof (system calls, network), or all",
			field: written(func(t *Tap) *[]string { return &t.Host }, parseHost, joined)},
		{name: "host-interval", form: "DURATION", modifies: Host, byDef: defaultHostInterval.String(),
			help: "time between two lines of a host collector, such as 200ms",
			field: span(func(t *Tap) *time.Duration { return &t.HostInterval }, minHostInterval, math.MaxInt64,
				"host interval %q: write a time from "+minHostInterval.String()+" on, such as 200ms, 1s or 5s")},
		{name: "host-details", modifies: Host, help: "with waits: write every single fault too, to host_faults.jsonl",
			onOff: func(t *Tap) *bool { return &t.HostDetails }},
		{name: "hosts", form: "NAME=HOST:PORT[,…]", recorder: Host,
			help: "record other hosts that take part, where 'llamatap host agent' runs: their clocks and metrics, " +
				"and what is moved to devices and back",
			field: written(func(t *Tap) *[]HostAddress { return &t.Hosts }, parseHosts, listed)},
		{name: "hosts-token", form: "FILE", modifies: Host,
			help:  "file with the token that the agents of --tap-hosts demand",
			field: plain(func(t *Tap) *string { return &t.HostsToken })},
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

// HostAddress is where another host's agent listens.
type HostAddress struct{ Name, Address string }

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// String is the host as it is written in the flag.
func (a HostAddress) String() string { return a.Name + "=" + a.Address }

func parseHosts(s string) (hosts []HostAddress, err error) {
	for one := range strings.SplitSeq(s, ",") {
		name, address, _ := strings.Cut(strings.TrimSpace(one), "=")
		_, _, err := net.SplitHostPort(address)
		if err != nil || !hostName.MatchString(name) ||
			slices.ContainsFunc(hosts, func(h HostAddress) bool { return h.Name == name }) {
			return nil, fmt.Errorf("host %.80q: write NAME=HOST:PORT, with another name for each", one)
		}
		hosts = append(hosts, HostAddress{name, address})
	}
	return hosts, nil
}
