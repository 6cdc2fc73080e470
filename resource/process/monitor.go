package process

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/shirou/gopsutil/v4/sensors"

	"github.com/llamatap/llamatap/resource"
)

// Options say whom a Monitor looks at.
type Options struct {
	// Model is the process that is recorded, which may not be known from the beginning: 0 until then, and none once it has ended.
	Model    func() int
	Interval time.Duration // nominal, for the lines
	// Now reads CLOCK_MONOTONIC in ns.
	Now func() int64
	// Root is the tree with proc and sys in it, for frequencies; nil = the machine's.
	Root fs.FS
}

// Monitor tells what the model's process and this one took between snapshots. It is for one goroutine.
type Monitor struct {
	o      Options
	before int64
	seen   map[int]*seen
}

// seen is a process as it was at the last snapshot.
type seen struct {
	p         *process.Process
	user, sys float64 // seconds
	minor     uint64
	major     uint64
	io        resource.ProcessIO
	known     bool // there was a snapshot
}

// Open begins to tell.
func Open(o Options) (*Monitor, error) {
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	process.EnableBootTimeCache(true) // else it is read anew for each figure, out of /proc/stat, which the kernel sums up over all interrupts
	m := &Monitor{o: o, before: o.Now(), seen: map[int]*seen{}}
	if _, err := m.use(os.Getpid(), 0); err != nil {
		return nil, fmt.Errorf("what this process takes: %w; mount proc: mount -t proc proc /proc", err)
	}
	return m, nil
}

// Snapshot returns what happened since the snapshot before, or since Open, as a resource.MonitorLine.
func (m *Monitor) Snapshot(now time.Time) (any, error) {
	mono := m.o.Now()
	took := time.Duration(mono - m.before)
	m.before = mono
	line := resource.MonitorLine{HostHeader: resource.NewHostHeader(now, mono, m.o.Interval, took, resource.OriginProc)}
	if pid := m.o.Model(); pid > 0 {
		line.Model, _ = m.use(pid, took) // one that has ended has none
	}
	line.Collector, _ = m.use(os.Getpid(), took)
	line.MHz, line.MHzSource = frequencies(m.o.Root)
	line.Celsius = temperatures()
	return line, nil
}

// use is what a process took since it was last looked at.
func (m *Monitor) use(pid int, took time.Duration) (*resource.ProcessUse, error) {
	s := m.seen[pid]
	if s == nil {
		p, err := process.NewProcess(int32(pid))
		if err != nil {
			return nil, err
		}
		s = &seen{p: p}
		m.seen[pid] = s
	}
	memory, err := s.p.MemoryInfo()
	if err != nil {
		return nil, err
	}
	times, err := s.p.Times()
	if err != nil {
		return nil, err
	}
	threads, err := s.p.NumThreads()
	if err != nil {
		return nil, err
	}
	u := &resource.ProcessUse{PID: pid, RSSBytes: memory.RSS, VirtualBytes: memory.VMS, Threads: int(threads)}
	u.UserNS, u.SystemNS = nanoseconds(times.User-s.user), nanoseconds(times.System-s.sys)
	if s.known && took > 0 {
		share := float64(u.UserNS+u.SystemNS) / float64(took)
		u.CPUShare = &share
	}
	s.user, s.sys = times.User, times.System
	if faults, err := s.p.PageFaults(); err == nil {
		u.Minor, u.Major = faults.MinorFaults-s.minor, faults.MajorFaults-s.major
		s.minor, s.major = faults.MinorFaults, faults.MajorFaults
	}
	if counters, err := s.p.IOCounters(); err == nil {
		now := resource.ProcessIO{
			ReadBytes: counters.ReadBytes, WriteBytes: counters.WriteBytes, ReadCalls: counters.ReadCount, WriteCalls: counters.WriteCount,
			DiskReadBytes: counters.DiskReadBytes, DiskWriteBytes: counters.DiskWriteBytes,
		}
		u.IO = since(now, s.io)
		s.io = now
	}
	s.known = true
	return u, nil
}

func nanoseconds(seconds float64) int64 { return int64(seconds*1e9 + 0.5) }

func since(now, before resource.ProcessIO) *resource.ProcessIO {
	return &resource.ProcessIO{
		ReadBytes: now.ReadBytes - before.ReadBytes, WriteBytes: now.WriteBytes - before.WriteBytes,
		ReadCalls: now.ReadCalls - before.ReadCalls, WriteCalls: now.WriteCalls - before.WriteCalls,
		DiskReadBytes: now.DiskReadBytes - before.DiskReadBytes, DiskWriteBytes: now.DiskWriteBytes - before.DiskWriteBytes,
	}
}

// frequencies are those of the processors in MHz, and who says so; none where nobody does.
func frequencies(root fs.FS) (mhz []float64, source string) {
	for cpu := 0; ; cpu++ {
		text, err := fs.ReadFile(root, "sys/devices/system/cpu/cpu"+strconv.Itoa(cpu)+"/cpufreq/scaling_cur_freq")
		if err != nil {
			break
		}
		khz, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			break
		}
		mhz = append(mhz, khz/1e3)
	}
	if len(mhz) > 0 {
		return mhz, "cpufreq"
	}
	text, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return nil, ""
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && strings.TrimSpace(name) == "cpu MHz" {
			mhz = append(mhz, v)
		}
	}
	if len(mhz) == 0 {
		return nil, ""
	}
	return mhz, "cpuinfo"
}

// temperatures are those that the machine's sensors tell. A sensor that fails is left out.
func temperatures() map[string]float64 {
	all, _ := sensors.SensorsTemperatures() // the error is a list of sensors that failed
	celsius := map[string]float64{}
	for _, t := range all {
		if t.Temperature > 0 {
			celsius[t.SensorKey] = t.Temperature
		}
	}
	if len(celsius) == 0 {
		return nil
	}
	return celsius
}

// Close ends nothing: there is nothing to be freed.
func (m *Monitor) Close() error { return nil }
