package resource

// MonitorLine is what processes took in an interval, and how fast and how warm the machine was at its end: a line
// of process.jsonl. What could not be read is absent.
type MonitorLine struct {
	HostHeader
	// Model is the process that is recorded; absent once it has ended. Collector is llamatap's own.
	Model     *ProcessUse `json:"model,omitempty"`
	Collector *ProcessUse `json:"collector,omitempty"`
	// Children are the processes that the model's has started, where they are recorded too, in the order in which they
	// began, while they run. LeftOut is the number of processes beyond the limit of a line.
	Children []ProcessUse `json:"children,omitempty"`
	LeftOut  int          `json:"children_left_out,omitempty"`
	// Total is what the model's process and its children took; absent where children are not recorded, and once all
	// have ended.
	Total *ProcessTotal `json:"total,omitempty"`
	// MHz are the frequencies of the processors, by number. MHzSource is cpufreq where the kernel reports what they are
	// now, cpuinfo where /proc/cpuinfo does, which in a virtual machine is what the processor is called by.
	MHz       []float64 `json:"cpu_mhz,omitempty"`
	MHzSource string    `json:"cpu_mhz_source,omitempty"`
	// Celsius are temperatures, by sensor.
	Celsius map[string]float64 `json:"temperature_c,omitempty"`
}

// ProcessUse is what a process took in an interval. Figures that count up are those of the interval; in the first
// line of a process, of its life before.
type ProcessUse struct {
	PID          int    `json:"pid"`
	Parent       int    `json:"parent_pid,omitempty"` // of children
	Name         string `json:"name,omitempty"`       // of the program, as the kernel has it: 15 bytes
	RSSBytes     uint64 `json:"rss_bytes"`            // at the snapshot
	VirtualBytes uint64 `json:"virtual_bytes"`
	Threads      int    `json:"threads"`
	UserNS       int64  `json:"cpu_user_ns"` // in steps of 10 ms, as the kernel counts
	SystemNS     int64  `json:"cpu_system_ns"`
	// of one processor's time in the interval; absent in the first line of a process
	CPUShare *float64   `json:"cpu_share,omitempty"`
	Minor    uint64     `json:"minor_faults"`
	Major    uint64     `json:"major_faults"`
	IO       *ProcessIO `json:"io,omitempty"` // absent: not ours to see
}

// ProcessTotal is what a process and its children took in an interval, those that ended in it included as far as
// one of the others waited for them.
type ProcessTotal struct {
	Processes int    `json:"processes"` // that run at the snapshot
	RSSBytes  uint64 `json:"rss_bytes"` // of these; a page that several have counts several times
	Threads   int    `json:"threads"`
	UserNS    int64  `json:"cpu_user_ns"`
	SystemNS  int64  `json:"cpu_system_ns"`
	// of one processor's time in the interval; absent in the first line
	CPUShare *float64   `json:"cpu_share,omitempty"`
	Minor    uint64     `json:"minor_faults"`
	Major    uint64     `json:"major_faults"`
	IO       *ProcessIO `json:"io,omitempty"` // absent: not of all of them ours to see
}

// ProcessIO is what a process read and wrote, and what children that it has waited for did: the kernel adds theirs
// when they end.
type ProcessIO struct {
	ReadBytes      uint64 `json:"read_bytes"` // through read(2) and the like, from wherever; mapped files do not count
	WriteBytes     uint64 `json:"write_bytes"`
	ReadCalls      uint64 `json:"read_calls"`
	WriteCalls     uint64 `json:"write_calls"`
	DiskReadBytes  uint64 `json:"disk_read_bytes"` // that a disk had to give, mapped files included
	DiskWriteBytes uint64 `json:"disk_write_bytes"`
}
