//go:build linux

package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/rundir"
)

// dial connects to the agents of other hosts, whose lines go to one file.
func (h *hostSide) dial(tap *config.Tap) {
	if len(tap.Hosts) == 0 {
		return
	}
	token, unread := cli.ReadFile(tap.HostsToken, cli.MaxConfig)
	if tap.HostsToken == "" {
		unread = errors.New("its agent demands a token: add --tap-hosts-token FILE")
	}
	lines := &hostLines{name: rundir.HostsName}
	h.lines = append(h.lines, lines)
	for _, at := range tap.Hosts {
		var other *process.RemoteHost
		err := unread
		if err == nil {
			other, err = process.DialAgent(at.Name, at.Address, strings.TrimSpace(string(token)))
		}
		if err != nil {
			h.unmet = append(h.unmet, hostMissing{at.Name, err.Error()})
			fmt.Fprintf(present.Err, "llamatap: --tap-hosts: %s is left out: %v\n", at.Name, err)
			continue
		}
		h.others = append(h.others, other)
		h.remote = append(h.remote, bpf.Source{Name: at.Name, Collector: other, Lines: lines})
	}
}

// moves writes what is moved to devices and back, and adds it up by host and device.
type moves struct {
	hosts   []config.HostAddress
	host    *hostSide
	lines   *hostLines
	buffers map[uint64]*place
	sums    map[place]*resource.DeviceMoves
	line    rundir.Line
}

// place is where a buffer lies.
type place struct{ host, device string }

func newMoves(tap *config.Tap, h *hostSide) *moves {
	return &moves{hosts: tap.Hosts, host: h, lines: &hostLines{name: rundir.MovesName},
		buffers: map[uint64]*place{}, sums: map[place]*resource.DeviceMoves{}}
}

// hostOf returns the name of the host that a kind of buffers lies on, such as RPC0[10.0.0.2:50052]: the one whose agent
// has the same address. It is "" where there is none.
func (m *moves) hostOf(kind string) string {
	_, endpoint, _ := strings.Cut(strings.TrimSuffix(kind, "]"), "[")
	name, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return ""
	}
	ips, _ := net.LookupIP(name)
	for _, o := range m.host.others {
		if slices.ContainsFunc(ips, o.Addr().Equal) {
			return o.Name
		}
	}
	return ""
}

// Buffer notes where a buffer lies.
func (m *moves) Buffer(b *ggmlhooks.Buffer) error {
	if !b.Host && m.buffers[b.ID] == nil {
		m.buffers[b.ID] = &place{m.hostOf(b.Type), b.Device}
	}
	return nil
}

// BufferEnd forgets a buffer.
func (m *moves) BufferEnd(e ggmlhooks.BufferEnd) error {
	delete(m.buffers, e.ID)
	return nil
}

// Moved writes a line.
func (m *moves) Moved(v *ggmlhooks.Moved) error {
	if v.Copy {
		return nil
	}
	at := m.buffers[v.Buffer]
	if at == nil { // it was freed before the program was recorded
		at = &place{}
	}
	sum := m.sums[*at]
	if sum == nil {
		sum = &resource.DeviceMoves{Device: at.device}
		m.sums[*at] = sum
	}
	op, took, bytes := "set", v.MonoNS-v.BegunNS, int64(v.Bytes)
	if v.Get {
		op = "get"
		sum.Received, sum.ReceivedBytes, sum.ReceivedNS = sum.Received+1, sum.ReceivedBytes+bytes, sum.ReceivedNS+took
	} else {
		sum.Sent, sum.SentBytes, sum.SentNS = sum.Sent+1, sum.SentBytes+bytes, sum.SentNS+took
	}
	l := &m.line
	l.Begin()
	l.Int("mono_ns", v.BegunNS)
	l.Int("took_ns", took)
	for _, text := range [][2]string{{"host", at.host}, {"device", at.device}, {"op", op}, {"tensor", v.Tensor}} {
		if text[1] != "" {
			l.String(text[0], text[1])
		}
	}
	l.Int("bytes", bytes)
	if v.Async {
		l.Bool("async", true)
	}
	if v.Own {
		sum.OwnBytes += bytes
		l.Bool("recording", true)
	}
	return m.lines.Append(l.End())
}

// Close ends the file.
func (m *moves) Close() error { return m.lines.close() }

// use is what metadata.json says of the other hosts.
func (m *moves) use() []resource.OtherHost {
	var otherHosts []resource.OtherHost
	for _, h := range m.hosts {
		o := resource.OtherHost{Name: h.Name, Address: h.Address}
		for _, missing := range m.host.unmet {
			if missing.Collector == h.Name {
				o.Error = missing.Reason
			}
		}
		for _, other := range m.host.others {
			if other.Name != h.Name {
				continue
			}
			o.Host, o.Kernel, o.BootID = other.Hello.Host, other.Hello.Kernel, other.Hello.BootID
			if fit, ok := other.Fit(); ok {
				o.Clock = &fit
			}
			if err := other.Err(); err != nil {
				o.Error = err.Error()
			}
		}
		for _, at := range slices.SortedFunc(maps.Keys(m.sums), func(a, b place) int {
			return cmp.Compare(a.device, b.device)
		}) {
			if at.host == h.Name {
				o.Devices = append(o.Devices, *m.sums[at])
			}
		}
		otherHosts = append(otherHosts, o)
	}
	return otherHosts
}

// summaryText reports how the hosts' clocks went, and what was moved.
func (m *moves) summaryText() string {
	var lines []string
	for _, o := range m.use() {
		lines = append(lines, "hosts     "+o.String())
	}
	return strings.Join(lines, "\n")
}
