package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource/process"
)

// hardware looks at processors and memory, and at what makes their speed vary.
func hardware(root fs.FS) []Fact {
	return []Fact{processors(root), memory(root), swap(root), nodes(root), governor(root), hugePages(root),
		nvidia(root), powercap(root)}
}

// allowed counts the processors that this process may use.
func allowed(root fs.FS) (int, error) {
	list, err := field(root, "proc/self/status", "Cpus_allowed_list:")
	if err != nil {
		return 0, err
	}
	return count(list)
}

func processors(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "processors"}
	mine, err := allowed(root)
	if err != nil {
		return f.unknown(err)
	}
	text, err := word(root, "sys/devices/system/cpu/online")
	if err != nil {
		return f.unknown(err)
	}
	online, err := count(text)
	if err != nil {
		return f.unknown(err)
	}
	text = fmt.Sprintf("%d online", online)
	if cores := physical(root); cores > 0 {
		text += fmt.Sprintf(", on %d cores", cores)
	}
	if mine < online {
		return f.with(Limited, fmt.Sprintf("%s; this process may use %d", text, mine)).
			lacking("the model computes on fewer processors",
				"widen the affinity (taskset, cpuset) of what starts llamatap")
	}
	return f.with(OK, text)
}

// physical counts the cores, 0 where sysfs does not say.
func physical(root fs.FS) int {
	files, _ := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	cores := map[string]bool{}
	for _, name := range files {
		if text, err := word(root, name); err == nil {
			cores[text] = true
		}
	}
	return len(cores)
}

// available is the memory in bytes that new programs can have without swapping.
func available(root fs.FS) (uint64, error) { return kilobytes(root, "MemAvailable:") }

func memory(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "memory"}
	total, err := kilobytes(root, "MemTotal:")
	if err != nil {
		return f.unknown(err)
	}
	free, err := available(root)
	if err != nil {
		return f.unknown(err)
	}
	return f.with(OK, present.Bytes(total)+", "+present.Bytes(free)+" available")
}

func kilobytes(root fs.FS, key string) (uint64, error) {
	text, err := field(root, "proc/meminfo", key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 64)
	return n << 10, err
}

// swap reports on swap, out of which weights may have to be read again.
func swap(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "swap"}
	text, err := word(root, "proc/swaps")
	if err != nil {
		return f.unknown(err)
	}
	lines := strings.Split(text, "\n")
	if len(lines) < 2 {
		return f.with(OK, "none")
	}
	var total, used uint64
	for _, line := range lines[1:] {
		part := strings.Fields(line)
		if len(part) < 4 {
			return f.unknown(errors.New("/proc/swaps has a line that is not understood"))
		}
		all, err := strconv.ParseUint(part[2], 10, 64)
		taken, wrong := strconv.ParseUint(part[3], 10, 64)
		if err = errors.Join(err, wrong); err != nil {
			return f.unknown(err)
		}
		total, used = total+all<<10, used+taken<<10
	}
	return f.with(Limited, present.Bytes(used)+" of "+present.Bytes(total)+" used").
		lacking("page faults that are the swap's, not the model's", "swapoff -a, or load with --mlock")
}

func nodes(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "numa"}
	text, err := word(root, "sys/devices/system/node/online")
	if absent(err) {
		return f.with(Unknown, "the kernel reports no nodes")
	}
	if err != nil {
		return f.unknown(err)
	}
	n, err := count(text)
	if err != nil {
		return f.unknown(err)
	}
	if n == 1 {
		return f.with(OK, "one node")
	}
	return f.with(OK, fmt.Sprintf("%d nodes: --numa of llama.cpp says how they are used", n))
}

// governor is how processors choose their frequency.
func governor(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "governor"}
	files, _ := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
	var names []string
	for _, name := range files {
		if text, err := word(root, name); err == nil && !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	switch {
	case len(names) == 0:
		return f.with(Unknown, "no cpufreq here; in a guest the host chooses the frequency")
	case len(names) == 1 && names[0] == "performance":
		return f.with(OK, names[0])
	}
	return f.with(Limited, strings.Join(names, ", ")).
		lacking("speeds vary with what ran before", "as root: cpupower frequency-set -g performance")
}

func hugePages(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "huge pages"}
	text, err := word(root, "sys/kernel/mm/transparent_hugepage/enabled")
	if isAbsentInKernel(root, "sys", err) {
		return f.with(Missing, "the kernel has no transparent ones").
			lacking("more misses of the TLB", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y")
	}
	_, after, found := strings.Cut(text, "[")
	chosen, _, closed := strings.Cut(after, "]")
	if err != nil {
		return f.unknown(err)
	} else if !found || !closed {
		return f.unknown(errors.New("/sys/kernel/mm/transparent_hugepage/enabled marks none"))
	}
	reserved, _ := word(root, "proc/sys/vm/nr_hugepages")
	if reserved != "" && reserved != "0" {
		chosen += ", " + reserved + " reserved"
	}
	if strings.HasPrefix(chosen, "never") {
		return f.with(Limited, "transparent ones: "+chosen).
			lacking("more misses of the TLB", "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
	}
	return f.with(OK, "transparent ones: "+chosen)
}

// nvidia looks for the library that reports on NVIDIA's GPUs. It is part of their driver.
func nvidia(root fs.FS) Fact {
	const library = "libnvidia-ml.so.1"
	f := Fact{Topic: "machine", Name: "nvml"}
	for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
		"usr/local/nvidia/lib64",
		"usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/wsl/lib", "run/opengl-driver/lib"} {
		if _, err := fs.Stat(root, path.Join(dir, library)); err == nil {
			return f.with(OK, "/"+path.Join(dir, library))
		}
	}
	driver, err := fs.Stat(root, "proc/driver/nvidia/version")
	text := "no " + library + " where loaders look"
	if err == nil && driver != nil {
		text += ", though the kernel has NVIDIA's driver"
	}
	return f.with(Missing, text).lacking("no load, memory, power and energy of NVIDIA's GPUs",
		"NVIDIA's driver; in a container, its container toolkit")
}

// powercap looks for the energy counters of processors and memory.
func powercap(root fs.FS) Fact {
	f := Fact{Topic: "machine", Name: "rapl"}
	const costs = "no energy of processors and memory"
	if _, err := fs.Stat(root, "sys"); err != nil {
		return f.unknown(err)
	}
	zones := process.EnergyZones(root)
	if len(zones) == 0 {
		return f.with(Missing, "no energy counters in /sys/class/powercap").lacking(costs,
			"a machine of Intel or AMD with the module intel_rapl_msr; virtual machines have none")
	}
	var names, refused []string
	for i := range zones {
		names = append(names, zones[i].Name)
		if _, err := zones[i].Read(root); err != nil {
			refused = append(refused, zones[i].Name)
		}
	}
	if len(refused) > 0 {
		return f.with(Limited, strings.Join(refused, ", ")+" cannot be read").lacking(costs,
			"record as root, or as root: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj")
	}
	return f.with(OK, strings.Join(names, ", "))
}

// field returns what follows a key at the start of a line.
func field(root fs.FS, name, key string) (string, error) {
	text, err := word(root, name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("/%s has no %s", name, strings.TrimSuffix(key, ":"))
}

// count counts the members of a list such as 0-3,8.
func count(list string) (n int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		low, err := strconv.Atoi(from)
		high, wrong := strconv.Atoi(to)
		if err = errors.Join(err, wrong); err != nil || high < low {
			return 0, fmt.Errorf("the list %q is not understood", list)
		}
		n += high - low + 1
	}
	return n, nil
}
