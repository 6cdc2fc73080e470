package blockio

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/resource"
)

// diskstats are a device's counters since the machine was started (Documentation/admin-guide/iostats.rst).
// Operations are read, write, discard, flush, in the order of resource.BlockOps.
type diskstats struct {
	id       uint32
	name     string
	ops      int // the number of operations that the kernel reports: 2, 3 or 4
	done     [4]uint64
	merges   [4]uint64 // not of flushes
	sectors  [4]uint64 // of 512 bytes; not of flushes
	ms       [4]uint64 // from submission to completion
	inflight int64     // submitted and not completed
	waitedMS uint64    // requests times milliseconds
}

// parseDiskstats reads /proc/diskstats. Lines that are too short are those of old kernels' partitions, and are left
// out.
func parseDiskstats(r io.Reader) ([]diskstats, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read block devices: %w", err)
	}
	var all []diskstats
	for line := range strings.Lines(string(text)) {
		id, name, rest, ok := splitDiskstats(line)
		if !ok || len(rest) < 11 {
			continue
		}
		v := make([]uint64, 17)
		for i, word := range rest[:min(len(rest), len(v))] {
			if v[i], err = strconv.ParseUint(word, 10, 64); err != nil {
				return nil, fmt.Errorf("read block device %s: %w", name, err)
			}
		}
		d := diskstats{id: id, name: name, ops: 2, inflight: int64(v[8]), waitedMS: v[10]}
		for i, at := range []int{0, 4, 11} {
			d.done[i], d.merges[i], d.sectors[i], d.ms[i] = v[at], v[at+1], v[at+2], v[at+3]
		}
		d.done[3], d.ms[3] = v[15], v[16]
		if len(rest) >= 15 {
			d.ops = 3
		}
		if len(rest) >= 17 {
			d.ops = 4
		}
		all = append(all, d)
	}
	return all, nil
}

// polled makes a line's figures of two states of /proc/diskstats, seconds apart.
func polled(line *resource.BlockLine, before, now []diskstats, names *names, only map[uint32]bool) {
	line.Latency, line.Inflight, line.Devices = []resource.DeviceLatency{}, []resource.DeviceInflight{},
		[]resource.BlockDevice{}
	line.Processes, line.Cgroups = []resource.BlockProcess{}, []resource.BlockCgroup{}
	earlier := map[uint32]*diskstats{}
	for i := range before {
		earlier[before[i].id] = &before[i]
	}
	ids := map[string]uint32{}
	for _, d := range now {
		ids[d.name] = d.id
	}
	for i := range now {
		d := &now[i]
		was := earlier[d.id]
		if was == nil || was.name != d.name || d.backwards(was) {
			was = &diskstats{} // it came meanwhile
		}
		known := names.device(d.id)
		parent, partition := ids[known.parent]
		if len(only) > 0 && !only[d.id] && !(partition && only[parent]) {
			continue
		}
		p := d.since(was)
		p.Alias = known.alias
		if partition {
			p.PartOf = &parent
		} else if line.ActualS > 0 {
			mean := float64(d.waitedMS-was.waitedMS) / 1e3 / line.ActualS
			p.DepthMean = &mean
		}
		if len(p.Ops) == 0 && d.inflight == 0 {
			continue
		}
		line.Devices = append(line.Devices, p)
		if !partition && d.inflight > 0 {
			line.Inflight = append(line.Inflight, resource.DeviceInflight{DeviceID: d.id, Name: d.name,
				Count: d.inflight})
		}
	}
	slices.SortFunc(line.Devices, func(a, b resource.BlockDevice) int { return int(a.DeviceID) - int(b.DeviceID) })
	slices.SortStableFunc(line.Inflight, func(a, b resource.DeviceInflight) int { return int(b.Count - a.Count) })
}

// backwards reports whether counters fell, which means another device under the same number.
func (d *diskstats) backwards(was *diskstats) bool {
	for op := range d.done {
		if d.done[op] < was.done[op] || d.ms[op] < was.ms[op] || d.sectors[op] < was.sectors[op] ||
			d.merges[op] < was.merges[op] {
			return true
		}
	}
	return d.waitedMS < was.waitedMS
}

func (d *diskstats) since(was *diskstats) resource.BlockDevice {
	p := resource.BlockDevice{DeviceID: d.id, Name: d.name, Ops: []resource.BlockOp{}}
	for op := range d.ops {
		o := resource.BlockOp{Op: resource.BlockOps[op]}
		ns := (d.ms[op] - was.ms[op]) * 1e6
		o.Requests, o.TotalNS = d.done[op]-was.done[op], &ns
		if op < 3 {
			merges := d.merges[op] - was.merges[op]
			o.Bytes, o.Merges = (d.sectors[op]-was.sectors[op])*512, &merges
		}
		if o.Requests == 0 && o.Bytes == 0 && (o.Merges == nil || *o.Merges == 0) {
			continue
		}
		p.BlockFigures.Add(&o.BlockFigures)
		p.Ops = append(p.Ops, o)
	}
	p.Inflight = &d.inflight
	return p
}
