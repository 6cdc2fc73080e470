package prof

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// Unattributed is the name for traffic of an unknown process.
const Unattributed = "(unattributed)"

// netKey is struct net_key of prof.bpf.c.
type netKey struct{ TGID, Family uint32 }

// netTally is struct net_stat of prof.bpf.c.
type netTally struct {
	OutBytes, InBytes, OutCalls, InCalls, OutErrors, InErrors, Retransmits uint64
}

func (t netTally) since(b netTally) netTally {
	return netTally{
		t.OutBytes - b.OutBytes, t.InBytes - b.InBytes, t.OutCalls - b.OutCalls, t.InCalls - b.InCalls,
		t.OutErrors - b.OutErrors, t.InErrors - b.InErrors, t.Retransmits - b.Retransmits,
	}
}

func sumNet(stats []netTally) netTally {
	var t netTally
	for _, s := range stats {
		t.OutBytes += s.OutBytes
		t.InBytes += s.InBytes
		t.OutCalls += s.OutCalls
		t.InCalls += s.InCalls
		t.OutErrors += s.OutErrors
		t.InErrors += s.InErrors
		t.Retransmits += s.Retransmits
	}
	return t
}

// families are the address families that have a name of their own.
var families = map[uint32]string{
	unix.AF_INET: "inet", unix.AF_INET6: "inet6", unix.AF_UNIX: "unix", unix.AF_NETLINK: "netlink",
	unix.AF_VSOCK: "vsock",
}

// netCounter reads the programs' counters of sockets.
type netCounter struct {
	set     *bpf.Set
	byCalls bool // counted by system calls, not by sockets
	nets    map[netKey]netTally
}

// events returns an event for each process that used sockets, those with the most bytes first.
func (c *netCounter) events(length time.Duration, names map[uint32]string) ([]resource.ProfEvent, error) {
	moved, err := c.moved()
	if err != nil {
		return nil, err
	}
	by := map[uint32]*resource.ProfNet{}
	for k, d := range moved {
		e := by[k.TGID]
		if e == nil {
			e = c.netEvent(k.TGID, names)
			by[k.TGID] = e
		}
		addNet(e, k.Family, d)
	}
	profNets := slices.SortedFunc(maps.Values(by), func(a, b *resource.ProfNet) int {
		return cmp.Or(cmp.Compare(b.TXBytes+b.RXBytes, a.TXBytes+a.RXBytes), cmp.Compare(a.PID, b.PID))
	})
	var events []resource.ProfEvent
	for _, e := range profNets {
		if length > 0 {
			e.TXBytesS, e.RXBytesS = float64(e.TXBytes)/length.Seconds(), float64(e.RXBytes)/length.Seconds()
		}
		events = append(events, e)
	}
	return events, nil
}

// moved returns what has changed since the snapshot before. What an ended process did is read a last time and removed.
func (c *netCounter) moved() (map[netKey]netTally, error) {
	m := c.set.Map("nets")
	now, changed := map[netKey]netTally{}, map[netKey]netTally{}
	if err := bpf.EachPerCPU(m, func(k netKey, stats []netTally) { now[k] = sumNet(stats) }); err != nil {
		return nil, err
	}
	for k, t := range now {
		gone := processEnded(k.TGID)
		if gone {
			var last []netTally
			if err := m.Lookup(k, &last); err != nil {
				return nil, fmt.Errorf("read BPF map nets: %w", err)
			}
			t = sumNet(last)
			if err := remove(m, k); err != nil {
				return nil, err
			}
		}
		if d := t.since(c.nets[k]); d != (netTally{}) {
			changed[k] = d
		}
		if now[k] = t; gone {
			delete(now, k)
		}
	}
	c.nets = now
	return changed, nil
}

func (c *netCounter) netEvent(tgid uint32, names map[uint32]string) *resource.ProfNet {
	e := &resource.ProfNet{PID: int(tgid), Comm: name(names, tgid), Via: "sockets"}
	e.Type = resource.ProfTypeNet
	if tgid == 0 {
		e.Comm = Unattributed
	}
	if c.byCalls {
		e.Via = "syscalls"
	}
	if c.set.Absent["on_retransmit"] == nil && c.set.Absent["on_retransmit_plain"] == nil {
		e.Retransmits = new(uint64)
	}
	return e
}

// retransmitError returns the offset of that error in the tracepoint; 0 if it has none.
func retransmitError() uint32 {
	fields, err := bpf.Fields("tcp", "tcp_retransmit_skb")
	if err != nil {
		return 0
	}
	return fields["err"]
}

// addNet adds a family's part to the event of a process.
func addNet(e *resource.ProfNet, family uint32, d netTally) {
	e.TXBytes += d.OutBytes
	e.RXBytes += d.InBytes
	e.TXCalls += d.OutCalls
	e.RXCalls += d.InCalls
	e.TXErrors += d.OutErrors
	e.RXErrors += d.InErrors
	if e.Retransmits != nil {
		*e.Retransmits += d.Retransmits
	}
	if family == 0 || d.OutCalls+d.InCalls == 0 {
		return
	}
	if e.Families == nil {
		e.Families = map[string]resource.ProfTraffic{}
	}
	name := cmp.Or(families[family], "other")
	t := e.Families[name]
	t.TXBytes += d.OutBytes
	t.RXBytes += d.InBytes
	t.TXCalls += d.OutCalls
	t.RXCalls += d.InCalls
	e.Families[name] = t
}
