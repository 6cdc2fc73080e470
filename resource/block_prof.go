package resource

// Disks returns the events disk of a snapshot, one for each disk that did anything or has requests, by id.
// Their headers are empty but for type and origin. What was polled has no latencies: the kernel counts only sums.
func (l *BlockLine) Disks() []*ProfDisk {
	var profDisks []*ProfDisk
	for i := range l.Devices {
		if d := &l.Devices[i]; d.PartOf == nil {
			profDisks = append(profDisks, l.disk(d))
		}
	}
	return profDisks
}

func (l *BlockLine) disk(d *BlockDevice) *ProfDisk {
	var latency, queue Histogram
	e := &ProfDisk{
		Dev: d.Name, DeviceID: d.DeviceID, Requests: d.Requests, Bytes: d.Bytes, QueueDepthAvg: d.DepthMean,
		QueueDepthMax: d.DepthMax,
		Reads:         new(uint64), Writes: new(uint64), ReadBytes: new(uint64), WriteBytes: new(uint64),
	}
	e.Type, e.Origin = ProfTypeDisk, l.Origin
	if d.Untimed != nil {
		e.Requests += *d.Untimed // they were completed too
	}
	for _, o := range d.Ops {
		latency.AddBuckets(o.Latency)
		queue.AddBuckets(o.Queue)
		switch o.Op {
		case BlockRead:
			*e.Reads, *e.ReadBytes = o.Requests, o.Bytes
		case BlockWrite:
			*e.Writes, *e.WriteBytes = o.Requests, o.Bytes
		}
	}
	if l.ActualS > 0 {
		e.IOPS, e.ThroughputBS = float64(e.Requests)/l.ActualS, float64(e.Bytes)/l.ActualS
	}
	e.LatP50US, e.LatP95US, e.LatP99US = latency.upper(50), latency.upper(95), latency.upper(99)
	e.QueueP99US = queue.upper(99)
	return e
}

// AddBuckets adds what Buckets listed.
func (h *Histogram) AddBuckets(buckets []Bucket) {
	for _, b := range buckets {
		if b.Slot >= 0 && b.Slot < HistogramSlots {
			h[b.Slot] += b.Count
		}
	}
}

// upper is a percentile's upper bound, nil for an empty histogram.
func (h *Histogram) upper(p float64) *float64 {
	if h.Total() == 0 {
		return nil
	}
	v := float64(h.Percentile(p))
	return &v
}
