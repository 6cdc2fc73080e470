package resources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
)

// DeviceRow is the nodes that one device of ggml computed, in executions that were timed inside, without set-up.
type DeviceRow struct {
	Device string  `json:"device"` // as ids of events have it: cpu, cuda0, rpc0
	Events int64   `json:"events"`
	NS     int64   `json:"ns"`
	Share  float64 `json:"share"` // of the time of all
}

// placement is where nodes were computed.
type placement struct {
	by       map[string]*DeviceRow
	switches int64 // how often a node of an execution was on another device than the one before
	graphs   int64 // executions that have them

	exec uint64
	last string
}

// add takes nodes that were timed.
func (p *placement) add(e *work) {
	device, _, ok := strings.Cut(e.ResourceID, "_compute_")
	if !ok || e.DurationNS < 0 || e.Phase == PhaseSetup {
		return
	}
	row := p.by[device]
	if row == nil {
		if len(p.by) == maxDevices {
			return
		}
		row = &DeviceRow{Device: strings.Clone(device)}
		p.by[row.Device] = row
	}
	row.Events++
	row.NS += e.DurationNS
	switch {
	case e.Exec != p.exec || p.graphs == 0:
		p.exec = e.Exec
		p.graphs++
	case p.last != row.Device:
		p.switches++
	}
	p.last = row.Device
}

// rows lists the devices, those first that took most time, and how often an execution changed between them.
func (p *placement) rows() (deviceRows []DeviceRow, changes *float64) {
	var sum int64
	for _, row := range p.by {
		sum += row.NS
	}
	for _, name := range slices.Sorted(maps.Keys(p.by)) {
		row := *p.by[name]
		if sum > 0 {
			row.Share = float64(row.NS) / float64(sum)
		}
		deviceRows = append(deviceRows, row)
	}
	slices.SortStableFunc(deviceRows, func(a, b DeviceRow) int { return cmp.Compare(b.NS, a.NS) })
	if p.graphs > 0 {
		changes = ratio(float64(p.switches), float64(p.graphs))
	}
	return deviceRows, changes
}

// placementText says where nodes were computed; "" where that was one device.
func placementText(deviceRows []DeviceRow, changes *float64) string {
	if len(deviceRows) < 2 || changes == nil {
		return ""
	}
	var parts []string
	for _, d := range deviceRows {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", d.Device, present.Nanoseconds(d.NS), present.Percent(d.Share)))
	}
	return fmt.Sprintf("%s; %s changes between them per graph", strings.Join(parts, ", "), present.Digits(*changes))
}
