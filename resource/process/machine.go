package process

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// processors reads the frequencies of the processors.
type processors struct {
	root   fs.FS
	files  []string  // of cpufreq, by processor
	called []float64 // what /proc/cpuinfo says for good: that of a machine which does not measure it
}

// findProcessors finds the source of frequencies once.
func findProcessors(root fs.FS) *processors {
	p := &processors{root: root}
	for cpu := 0; ; cpu++ {
		file := "sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/cpufreq/scaling_cur_freq"
		if _, err := number(root, file); err != nil {
			break
		}
		p.files = append(p.files, file)
	}
	if len(p.files) > 0 {
		return p
	}
	if mhz, measured := cpuinfo(root); !measured {
		p.called = mhz
	}
	return p
}

// frequencies are those of the processors in MHz, and who says so; none where nobody does.
func (p *processors) frequencies() (mhz []float64, source string) {
	for _, file := range p.files {
		khz, err := number(p.root, file)
		if err != nil {
			break // a processor was taken away
		}
		mhz = append(mhz, khz/1e3)
	}
	if len(mhz) > 0 {
		return mhz, "cpufreq"
	}
	if mhz = p.called; mhz == nil {
		mhz, _ = cpuinfo(p.root)
	}
	if len(mhz) == 0 {
		return nil, ""
	}
	return mhz, "cpuinfo"
}

// cpuinfo is what /proc/cpuinfo says of frequencies in MHz; none on other processors than x86. They are measured
// where the processor has the counters for it, else they are what the kernel found when it started.
func cpuinfo(root fs.FS) (mhz []float64, measured bool) {
	text, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return nil, false
	}
	mhz = []float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "cpu MHz":
			if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				mhz = append(mhz, v)
			}
		case "flags":
			measured = measured || slices.Contains(strings.Fields(value), "aperfmperf")
		}
	}
	return mhz, measured
}

// sensor is a temperature sensor.
type sensor struct{ key, file string }

// findSensors looks once for the machine's sensors. Their keys are those of gopsutil: the name of the chip, and the
// label of the sensor.
func findSensors(root fs.FS) (sensors []sensor) {
	files, _ := fs.Glob(root, "sys/class/hwmon/hwmon*/temp*_input")
	if len(files) == 0 { // of older kernels
		files, _ = fs.Glob(root, "sys/class/hwmon/hwmon*/device/temp*_input")
	}
	for _, file := range files {
		dir, name := path.Split(file)
		key, err := line(root, dir+"name")
		if err != nil {
			continue
		}
		if label, _ := line(root, dir+strings.TrimSuffix(name, "_input")+"_label"); label != "" {
			key += "_" + strings.ReplaceAll(strings.ToLower(label), " ", "_")
		}
		sensors = append(sensors, sensor{key, file})
	}
	if len(files) > 0 {
		return sensors
	}
	zones, _ := fs.Glob(root, "sys/class/thermal/thermal_zone*/type") // of machines without hwmon
	for _, file := range zones {
		if key, err := line(root, file); err == nil {
			sensors = append(sensors, sensor{key, path.Dir(file) + "/temp"})
		}
	}
	return sensors
}

// temperatures reads the machine's sensors, in degrees Celsius. A sensor that fails is omitted.
func temperatures(root fs.FS, sensors []sensor) map[string]float64 {
	var celsius map[string]float64
	for _, s := range sensors {
		v, err := number(root, s.file)
		if err != nil || v <= 0 {
			continue
		}
		if celsius == nil {
			celsius = map[string]float64{}
		}
		celsius[s.key] = v / 1e3
	}
	return celsius
}

// line returns the text of a file of one line.
func line(root fs.FS, file string) (string, error) {
	text, err := fs.ReadFile(root, file)
	return strings.TrimSpace(string(text)), err
}

func number(root fs.FS, file string) (float64, error) {
	text, err := line(root, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}
