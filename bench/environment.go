package bench

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/machine"
)

// Environment says where a benchmark ran. What this machine does not report is absent.
type Environment struct {
	Time      string  `json:"time"`     // when it was looked at, RFC 3339
	Llamatap  string  `json:"llamatap"` // version of the program
	OS        string  `json:"os"`
	Kernel    string  `json:"kernel,omitempty"`
	CPU       string  `json:"cpu,omitempty"`
	CPUs      int     `json:"cpus"`
	MHz       float64 `json:"cpu_mhz,omitempty"`      // of the first CPU, as the kernel reports it
	Governor  string  `json:"cpu_governor,omitempty"` // of the first CPU
	LoadAvg   string  `json:"loadavg,omitempty"`      // 1, 5 and 15 minutes
	Llama     string  `json:"llama_version,omitempty"`
	LlamaPath string  `json:"llama_prefix,omitempty"` // where its libraries lie
	// BuildCommit and BuildNumber are what llama.cpp's own programs call their build.
	BuildCommit *string `json:"build_commit,omitempty"`
	BuildNumber *int    `json:"build_number,omitempty"`
	Spin        Spin    `json:"idle_spin"`
}

// Spin is what a thread that only looks at the clock lost to everything else on the machine, before the first
// visit: the machine's noise.
type Spin struct {
	NS        int64   `json:"ns"`         // how long it looked
	LostShare float64 `json:"lost_share"` // of that time, in gaps of more than 10 µs between two looks
	Gaps      int     `json:"gaps"`       // how many of those
	LongestNS int64   `json:"longest_ns"` // the longest
}

// gap is from when on the time between two looks at the clock is the machine's and not the loop's.
const gap = 10 * time.Microsecond

// spinFor measures the machine's noise for so long.
func spinFor(d time.Duration) Spin {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var s Spin
	var lost time.Duration
	begin := time.Now()
	last := begin
	for last.Sub(begin) < d {
		now := time.Now()
		if between := now.Sub(last); between > gap {
			lost += between
			s.Gaps++
			s.LongestNS = max(s.LongestNS, between.Nanoseconds())
		}
		last = now
	}
	s.NS = last.Sub(begin).Nanoseconds()
	s.LostShare = float64(lost.Nanoseconds()) / float64(s.NS)
	return s
}

// megahertz is the first CPU's frequency in /proc/cpuinfo.
var megahertz = regexp.MustCompile(`cpu MHz\s*: ([0-9.]+)`)

// LookAround describes this machine. llamaBench starts llama.cpp's llama-bench, "" where it is not there. It takes
// half a second.
func LookAround(llamaBench string) *Environment {
	e := &Environment{
		Time: time.Now().UTC().Format(time.RFC3339), OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		CPU:      machine.CPUName(),
		Kernel:   firstLine("/proc/sys/kernel/osrelease"),
		Governor: firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
	}
	if fields := strings.Fields(firstLine("/proc/loadavg")); len(fields) >= 3 {
		e.LoadAvg = strings.Join(fields[:3], " ")
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	if mhz := megahertz.FindSubmatch(cpuinfo); mhz != nil {
		e.MHz, _ = strconv.ParseFloat(string(mhz[1]), 64)
	}
	current := firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
	if kHz, err := strconv.ParseFloat(current, 64); err == nil {
		e.MHz = kHz / 1000
	}
	if llamaBench != "" {
		if output, err := exec.Command(llamaBench, "--version").CombinedOutput(); err == nil {
			e.BuildCommit, e.BuildNumber = parseBuild(output)
		}
	}
	e.Spin = spinFor(500 * time.Millisecond)
	return e
}

// buildPattern reads what llama.cpp's programs say of their build: 0.7.0's form, and the older one.
var buildPattern = regexp.MustCompile(`version: (?:\S+ \(build (\d+), commit (\S+)\)|(\d+) \((\S+)\))`)

func parseBuild(output []byte) (commit *string, number *int) {
	match := buildPattern.FindSubmatch(output)
	if match == nil {
		return nil, nil
	}
	n, err := strconv.Atoi(string(match[1]) + string(match[3]))
	if err != nil {
		return nil, nil
	}
	return new(string(match[2]) + string(match[4])), &n
}

// firstLine is a file's first line, "" where it cannot be read.
func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// String is the environment on two lines, for people.
func (e *Environment) String() string {
	known := func(format string, v string) string {
		if v == "" {
			return ""
		}
		return fmt.Sprintf(format, v)
	}
	mhz := ""
	if e.MHz > 0 {
		mhz = fmt.Sprintf(" at %.0f MHz", e.MHz)
	}
	return fmt.Sprintf("machine: %s%s, %d CPUs%s, %s%s%s\nnoise: a spinning thread lost %.2f %% of %d ms, at most "+
		"%.2f ms at once%s",
		e.CPU, mhz, e.CPUs, known(", governor %s", e.Governor), e.OS, known(" %s", e.Kernel),
		known(", llama.cpp %s", e.Llama),
		100*e.Spin.LostShare, e.Spin.NS/1e6, float64(e.Spin.LongestNS)/1e6, known("; load %s", e.LoadAvg))
}
