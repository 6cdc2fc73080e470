package host

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
)

// figuresLine is what llamatap's own recorder adds to a line of block I/O, of a device, an operation, a process or
// a control group (resource.BlockFigures and what has them).
type figuresLine struct {
	ID       number       `json:"device_id"`
	Name     word         `json:"device_name"`
	Alias    word         `json:"alias"`
	PartOf   number       `json:"part_of"`
	PID      number       `json:"pid"`
	Comm     word         `json:"comm"`
	Path     word         `json:"path"`
	Op       word         `json:"op"`
	Requests number       `json:"requests"`
	Bytes    number       `json:"bytes"`
	Service  number       `json:"service_ns"`
	Queue    number       `json:"queue_ns"`
	Merges   number       `json:"merges"`
	Requeues number       `json:"requeues"`
	Errors   number       `json:"errors"`
	DepthMax number       `json:"depth_max"`
	Depth    number       `json:"depth_mean"`
	Latency  []bucketLine `json:"latency"`
}

// opLine is such a line with its operations.
type opLine struct {
	figuresLine
	Ops []figuresLine `json:"ops"`
}

// OpRow is what was done of one operation at a device, by a process, or for a control group.
type OpRow struct {
	DeviceID int64  `json:"device_id,omitempty"`
	Device   string `json:"device_name,omitempty"`
	Alias    string `json:"alias,omitempty"`   // of a device-mapper device its name, of a loop device its file
	PartOf   *int64 `json:"part_of,omitempty"` // of a partition: device_id of its disk, which counts its requests too
	PID      int64  `json:"pid,omitempty"`
	Comm     string `json:"comm,omitempty"`
	Cgroup   string `json:"cgroup,omitempty"`
	Op       string `json:"op,omitempty"` // read, write, discard, flush, other; absent for all together
	Requests uint64 `json:"requests"`
	Bytes    uint64 `json:"bytes"`
	Errors   uint64 `json:"errors,omitempty"`
	Merges   uint64 `json:"merges,omitempty"`
	Requeues uint64 `json:"requeues,omitempty"`
	// ServiceUS is the mean time from issue to completion, QueueUS from submission to issue: measured, not taken of
	// buckets.
	ServiceUS   *float64     `json:"service_mean_us,omitempty"`
	QueueUS     *float64     `json:"queue_mean_us,omitempty"`
	Percentiles []Percentile `json:"latency_percentiles,omitempty"`

	service, queue float64 // ns
	timed, queued  uint64  // requests that they are of
	latency        Latency
}

// add adds the figures of an interval.
func (r *OpRow) add(f *figuresLine) {
	n := f.Requests.count()
	r.Requests += n
	r.Bytes += f.Bytes.count()
	r.Errors += f.Errors.count()
	r.Merges += f.Merges.count()
	r.Requeues += f.Requeues.count()
	if f.Service.known {
		r.service, r.timed = r.service+f.Service.v, r.timed+n
	}
	if f.Queue.known {
		r.queue, r.queued = r.queue+f.Queue.v, r.queued+n
	}
	var ignored bounds
	for i := range f.Latency {
		if slot, ok := f.Latency[i].slot(false, &ignored); ok {
			r.latency.add(slot, f.Latency[i].Count.count())
		}
	}
}

// finish computes the figures of the report.
func (r *OpRow) finish(percentiles []float64) *OpRow {
	if r.timed > 0 {
		r.ServiceUS = new(r.service / float64(r.timed) / 1e3)
	}
	if r.queued > 0 {
		r.QueueUS = new(r.queue / float64(r.queued) / 1e3)
	}
	r.Percentiles = r.latency.percentiles(percentiles)
	return r
}

// opKey identifies a row.
type opKey struct {
	device   int64
	pid      int64
	comm, op string
}

// opSums are rows in the making. Where there would be more than a bound, the smaller half is forgotten.
type opSums struct {
	rows      map[opKey]*OpRow
	forgotten int64
}

// findOrAdd finds a row, or makes it.
func (t *opSums) findOrAdd(key opKey) *OpRow {
	if row := t.rows[key]; row != nil {
		return row
	}
	if t.rows == nil {
		t.rows = map[opKey]*OpRow{}
	}
	if len(t.rows) >= maxIDs/4 {
		for _, old := range t.keys()[maxIDs/8:] {
			t.forgotten++
			delete(t.rows, old)
		}
	}
	row := &OpRow{}
	t.rows[key] = row
	return row
}

// keys are those of the rows, with most bytes first.
func (t *opSums) keys() []opKey {
	return slices.SortedFunc(maps.Keys(t.rows), func(a, b opKey) int {
		x, y := t.rows[a], t.rows[b]
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Requests, x.Requests),
			cmp.Compare(a.device, b.device), cmp.Compare(a.pid, b.pid),
			cmp.Compare(a.comm, b.comm), cmp.Compare(a.op, b.op))
	})
}

// finish lists the rows.
func (t *opSums) finish(percentiles []float64) []*OpRow {
	var rows []*OpRow
	for _, key := range t.keys() {
		rows = append(rows, t.rows[key].finish(percentiles))
	}
	return rows
}

// operations adds up what llamatap's own recorder adds to STRAP-LLM's keys.
type operations struct {
	devices, processes, cgroups opSums
	aliases                     map[int64]string // the last of each device
}

// add takes a line.
func (o *operations) add(line *blockLine) {
	for i := range line.Figures {
		device := &line.Figures[i]
		if device.Alias != "" && len(o.aliases) < maxIDs {
			if o.aliases == nil {
				o.aliases = map[int64]string{}
			}
			o.aliases[int64(device.ID.v)] = string(device.Alias)
		}
		for k := range device.Ops {
			op := &device.Ops[k]
			row := o.devices.findOrAdd(opKey{device: int64(device.ID.v), op: string(op.Op)})
			row.DeviceID, row.Device, row.Op = int64(device.ID.v), string(device.Name), string(op.Op)
			if device.PartOf.known {
				row.PartOf = new(int64(device.PartOf.v))
			}
			row.add(op)
		}
	}
	for i := range line.Processes {
		p := &line.Processes[i]
		row := o.processes.findOrAdd(opKey{pid: int64(p.PID.v), comm: string(p.Comm)})
		row.PID, row.Comm = int64(p.PID.v), string(p.Comm)
		row.add(p)
	}
	for i := range line.Cgroups {
		c := &line.Cgroups[i]
		row := o.cgroups.findOrAdd(opKey{comm: string(c.Path)})
		row.Cgroup = string(c.Path)
		row.add(c)
	}
}

// byDevice lists the rows of devices: as the devices are by their requests, and then by operation.
func (o *operations) byDevice(percentiles []float64) []*OpRow {
	rows, total := o.devices.finish(percentiles), map[int64]uint64{}
	for _, r := range rows {
		total[r.DeviceID] += r.Requests
		r.Alias = o.aliases[r.DeviceID]
	}
	slices.SortStableFunc(rows, func(a, b *OpRow) int {
		return cmp.Or(cmp.Compare(total[b.DeviceID], total[a.DeviceID]), cmp.Compare(a.DeviceID, b.DeviceID),
			cmp.Compare(slices.Index(resource.BlockOps, a.Op), slices.Index(resource.BlockOps, b.Op)))
	})
	return rows
}

// The bounds of the text.
const (
	textOps       = 40
	textProcesses = 10
	aliasRunes    = 24 // of a long path its end
)

// writeOps writes the tables of operations, processes and control groups.
func (r *Report) writeOps(b *strings.Builder) {
	for _, t := range []struct {
		heading string
		names   []string
		rows    []*OpRow
		cells   func(*OpRow) []string
		most    int
	}{
		{"by operation", []string{"device", "operation"}, r.Operations, deviceCells, textOps},
		{"by process that submitted the requests", []string{" pid", "name"}, r.Processes,
			func(o *OpRow) []string { return []string{strconv.FormatInt(o.PID, 10), o.Comm} }, textProcesses},
		{"by control group", []string{"group"}, r.Cgroups, func(o *OpRow) []string { return []string{o.Cgroup} },
			textProcesses},
	} {
		if len(t.rows) == 0 {
			continue
		}
		highest := percentileHead(r.percents[len(r.percents)-1:])[0]
		g := grid{append(t.names, " requests", " bytes", " per request", " waited ≈", " served ≈", highest,
			" merged", " errors")}
		for _, o := range t.rows[:min(len(t.rows), t.most)] {
			g = append(g, o.appendCells(t.cells(o)))
		}
		b.WriteString("\n" + t.heading + "\n")
		g.write(b)
		if more := len(t.rows) - t.most; more > 0 {
			b.WriteString("and " + strconv.Itoa(more) + " more; --json has all\n")
		}
	}
}

// deviceCells names a device and an operation.
func deviceCells(o *OpRow) []string {
	name := o.Device
	if o.PartOf != nil {
		name = "  " + name // below its disk
	}
	if alias := []rune(o.Alias); len(alias) > aliasRunes {
		name += " (…" + string(alias[len(alias)-aliasRunes:]) + ")"
	} else if len(alias) > 0 {
		name += " (" + o.Alias + ")"
	}
	return []string{name, o.Op}
}

// appendCells adds the figures, of percentiles the highest.
func (o *OpRow) appendCells(cells []string) []string {
	each, last := "-", "-"
	if o.Requests > 0 {
		each = present.Bytes(float64(o.Bytes) / float64(o.Requests))
	}
	cells = append(cells, strconv.FormatUint(o.Requests, 10), present.Bytes(float64(o.Bytes)), each,
		present.Maybe(o.QueueUS, usText), present.Maybe(o.ServiceUS, usText))
	if n := len(o.Percentiles); n > 0 {
		last = usText(float64(o.Percentiles[n-1].AtMostUS))
	}
	return append(cells, last, strconv.FormatUint(o.Merges, 10), strconv.FormatUint(o.Errors, 10))
}
