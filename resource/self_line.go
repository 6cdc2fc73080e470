package resource

// SelfLine is what llamatap's own process, the collector, cost in an interval. Its origin is proc.
type SelfLine struct {
	HostHeader
	UserNS    int64   `json:"cpu_user_ns"`
	SystemNS  int64   `json:"cpu_system_ns"`
	CPUShare  float64 `json:"cpu_share"` // of one processor's time in the interval, 0 to the number of processors
	RSSBytes  uint64  `json:"rss_bytes"` // at the snapshot
	PeakBytes uint64  `json:"rss_peak_bytes"`
	Minor     uint64  `json:"minor_faults"`
	Major     uint64  `json:"major_faults"`

	Voluntary   uint64 `json:"switches_voluntary"`
	Involuntary uint64 `json:"switches_involuntary"`

	// BPF is what its BPF programs cost those whom they watch; absent where the kernel does not count it
	// (bpf.EnableStats).
	BPF *BPFCost `json:"bpf,omitempty"`
}

// BPFCost is the time that BPF programs took, on whichever processor they ran.
type BPFCost struct {
	Runs     uint64        `json:"runs"`
	TimeNS   int64         `json:"time_ns"`
	CPUShare float64       `json:"cpu_share"` // of one processor's time in the interval
	Programs []ProgramCost `json:"programs"`  // by collector and name; those that ran
}

// ProgramCost is the part of one program.
type ProgramCost struct {
	Collector string  `json:"collector"`
	Program   string  `json:"program"`
	Runs      uint64  `json:"runs"`
	TimeNS    int64   `json:"time_ns"`
	PerRunNS  float64 `json:"ns_per_run"`
}
