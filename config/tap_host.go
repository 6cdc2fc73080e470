package config

import (
	"fmt"
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
		{name: "hosts", form: "NAME=HOST:PORT[,…]", recorder: Host,
			help: "record other hosts that take part, where 'llamatap host agent' runs: their clocks and metrics, " +
				"and what is moved to devices and back",
			set: setHosts,
			get: func(t *Tap) any { return text(hostsText(t.Hosts)) }},
		{name: "hosts-token", form: "FILE", role: roleModifier, recorder: Host,
			help: "file with the token that the agents of --tap-hosts demand",
			set:  func(t *Tap, s string) error { t.HostsToken = s; return nil },
			get:  func(t *Tap) any { return text(t.HostsToken) }},
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

// HostAddress is where another host's agent listens.
type HostAddress struct{ Name, Address string }

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func setHosts(t *Tap, s string) error {
	t.Hosts = nil
	for one := range strings.SplitSeq(s, ",") {
		name, address, _ := strings.Cut(strings.TrimSpace(one), "=")
		_, _, err := net.SplitHostPort(address)
		if err != nil || !hostName.MatchString(name) ||
			slices.ContainsFunc(t.Hosts, func(h HostAddress) bool { return h.Name == name }) {
			return fmt.Errorf("host %.80q: write NAME=HOST:PORT, with another name for each", one)
		}
		t.Hosts = append(t.Hosts, HostAddress{name, address})
	}
	return nil
}

func hostsText(hosts []HostAddress) string {
	var all []string
	for _, h := range hosts {
		all = append(all, h.Name+"="+h.Address)
	}
	return strings.Join(all, ",")
}
