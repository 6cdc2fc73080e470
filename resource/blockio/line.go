package blockio

import (
	"cmp"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/resource"
)

// share is what a row did in an interval.
type share struct {
	row
	delta
}

// depth is how many requests a disk had.
type depth struct {
	id   uint32
	most int64
	mean *float64 // nil: not known
}

// interval is what a line is made of.
type interval struct {
	shares []share
	depths map[int]depth // by the disk's index
	plain  bool          // figures that need the kernel's types (BTF) are unknown
	strap  bool
	device func(id uint32) device
	group  func(id uint64) string
}

// fill makes a line's figures of an interval.
func (iv *interval) fill(line *resource.BlockLine) {
	iv.devices(line)
	iv.processes(line)
	iv.cgroups(line)
}

// figures converts a delta to the figures of a line.
func (iv *interval) figures(d *delta) resource.BlockFigures {
	h := d.allSizes()
	f := resource.BlockFigures{
		Requests: h.Total(), Bytes: d.bytes, ServiceNS: &d.serviceNS, Requeues: &d.requeues, Errors: &d.errors,
		Untimed: &d.untimed, Inflight: &d.inflight,
	}
	if !iv.plain {
		f.QueueNS, f.Merges, f.Unissued, f.UnissuedNS, f.Waiting = &d.queueNS, &d.merges, &d.unissued, &d.unissuedNS,
			&d.waiting
	}
	return f
}

// op converts a delta of one operation.
func (iv *interval) op(op uint32, d *delta) resource.BlockOp {
	h := d.allSizes()
	return resource.BlockOp{Op: resource.BlockOps[op], BlockFigures: iv.figures(d), Latency: h.Buckets(false)}
}

// detailed is op with the queue and each size.
func (iv *interval) detailed(op uint32, d *delta) resource.BlockOp {
	o := iv.op(op, d)
	if !iv.plain {
		o.Queue = d.queue.Buckets(false)
	}
	for i := range d.latency {
		if n := d.latency[i].Total(); n > 0 {
			s := resource.BlockSize{Requests: n, Latency: d.latency[i].Buckets(false)}
			if i < len(resource.BlockSizeLimits) {
				s.UpTo = &resource.BlockSizeLimits[i]
			}
			o.Sizes = append(o.Sizes, s)
		}
	}
	return o
}

// sum adds the shares of one key up, and lists the keys in order.
func sum[K comparable](shares []share, key func(*share) (K, bool), order func(a, b K) int) ([]K, map[K]*delta) {
	sums := map[K]*delta{}
	for i := range shares {
		s := &shares[i]
		k, ok := key(s)
		if !ok || s.empty() {
			continue
		}
		if sums[k] == nil {
			sums[k] = &delta{}
		}
		sums[k].merge(&s.delta)
	}
	return slices.SortedFunc(maps.Keys(sums), order), sums
}

type deviceOp struct{ device, op uint32 }

func (a deviceOp) compare(b deviceOp) int {
	return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.op, b.op))
}

// devices fills in what disks and partitions did. A partition's share counts for its disk too.
func (iv *interval) devices(line *resource.BlockLine) {
	partOf := map[uint32]uint32{}
	byOp := map[deviceOp]*delta{}
	add := func(k deviceOp, d *delta) {
		if byOp[k] == nil {
			byOp[k] = &delta{}
		}
		byOp[k].merge(d)
	}
	for i := range iv.shares {
		s := &iv.shares[i]
		if s.empty() {
			continue
		}
		add(deviceOp{s.device, s.op}, &s.delta)
		if id := iv.depths[int(s.disk)].id; id != s.device {
			partOf[s.device] = id
			add(deviceOp{id, s.op}, &s.delta)
		}
	}
	line.Latency, line.Inflight, line.Devices = []resource.DeviceLatency{}, []resource.DeviceInflight{},
		[]resource.BlockDevice{}
	var d *resource.BlockDevice
	for _, k := range slices.SortedFunc(maps.Keys(byOp), deviceOp.compare) {
		if d == nil || d.DeviceID != k.device {
			line.Devices = append(line.Devices, iv.newDevice(k.device, partOf))
			d = &line.Devices[len(line.Devices)-1]
		}
		o := iv.detailed(k.op, byOp[k])
		d.BlockFigures.Add(&o.BlockFigures)
		d.Ops = append(d.Ops, o)
	}
	for _, d := range line.Devices {
		if d.PartOf == nil {
			iv.disk(line, &d, byOp)
		}
	}
	slices.SortStableFunc(line.Latency, func(a, b resource.DeviceLatency) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(line.Inflight, func(a, b resource.DeviceInflight) int {
		return cmp.Compare(b.Count, a.Count)
	})
}

func (iv *interval) newDevice(id uint32, partOf map[uint32]uint32) resource.BlockDevice {
	known := iv.device(id)
	d := resource.BlockDevice{DeviceID: id, Name: known.name, Alias: known.alias}
	if parent, ok := partOf[id]; ok {
		d.PartOf = &parent
		return d
	}
	for _, at := range iv.depths {
		if at.id == id {
			d.DepthMax, d.DepthMean = &at.most, at.mean
		}
	}
	return d
}

// disk fills in STRAP-LLM's keys of a disk.
func (iv *interval) disk(line *resource.BlockLine, d *resource.BlockDevice, byOp map[deviceOp]*delta) {
	var h resource.Histogram
	for op := range uint32(opCount) {
		if of := byOp[deviceOp{d.DeviceID, op}]; of != nil {
			all := of.allSizes()
			h.Merge(&all)
		}
	}
	if n := h.Total(); n > 0 {
		line.Latency = append(line.Latency, resource.DeviceLatency{DeviceID: d.DeviceID, Name: d.Name, Total: n,
			Buckets: h.Buckets(iv.strap)})
	}
	if d.Inflight != nil && *d.Inflight > 0 {
		line.Inflight = append(line.Inflight, resource.DeviceInflight{DeviceID: d.DeviceID, Name: d.Name,
			Count: *d.Inflight})
	}
}

type processOp struct {
	tgid uint32
	comm string
	deviceOp
}

func (iv *interval) processes(line *resource.BlockLine) {
	keys, sums := sum(iv.shares, func(s *share) (processOp, bool) {
		return processOp{s.tgid, s.comm, deviceOp{s.device, s.op}}, true
	}, func(a, b processOp) int {
		return cmp.Or(cmp.Compare(a.tgid, b.tgid), cmp.Compare(a.comm, b.comm), a.deviceOp.compare(b.deviceOp))
	})
	line.Processes = []resource.BlockProcess{}
	for _, k := range keys {
		line.Processes = append(line.Processes, resource.BlockProcess{PID: k.tgid, Comm: k.comm, DeviceID: k.device,
			BlockOp: iv.op(k.op, sums[k])})
	}
}

type groupOp struct {
	group uint64
	deviceOp
}

func (iv *interval) cgroups(line *resource.BlockLine) {
	keys, sums := sum(iv.shares, func(s *share) (groupOp, bool) {
		return groupOp{s.cgroup, deviceOp{s.device, s.op}}, s.hasGroup && s.cgroup != 0
	}, func(a, b groupOp) int {
		return cmp.Or(cmp.Compare(a.group, b.group), a.deviceOp.compare(b.deviceOp))
	})
	line.Cgroups = []resource.BlockCgroup{}
	for _, k := range keys {
		line.Cgroups = append(line.Cgroups, resource.BlockCgroup{CgroupID: k.group, Path: iv.group(k.group),
			DeviceID: k.device, BlockOp: iv.op(k.op, sums[k])})
	}
}
