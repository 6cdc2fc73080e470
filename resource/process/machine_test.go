package process

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/shirou/gopsutil/v4/sensors"

	"github.com/llamatap/llamatap/internal/testenv"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestFrequencies(t *testing.T) {
	info := file("processor\t: 0\ncpu MHz\t\t: 2100.000\n\nprocessor\t: 1\ncpu MHz\t\t: 2099.5\n")
	for _, c := range []struct {
		name   string
		tree   fstest.MapFS
		mhz    []float64
		source string
	}{
		{"now", fstest.MapFS{
			"sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": file("3600123\n"),
			"sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": file("800000\n"), "proc/cpuinfo": info,
		}, []float64{3600.123, 800}, "cpufreq"},
		{"as it is called", fstest.MapFS{"proc/cpuinfo": info}, []float64{2100, 2099.5}, "cpuinfo"},
		{"of Arm", fstest.MapFS{"proc/cpuinfo": file("processor\t: 0\nBogoMIPS\t: 50.00\n")}, nil, ""},
		{"nowhere", fstest.MapFS{}, nil, ""},
	} {
		if mhz, source := findProcessors(c.tree).frequencies(); !reflect.DeepEqual(mhz, c.mhz) || source != c.source {
			t.Errorf("%s: %v by %q", c.name, mhz, source)
		}
	}
}

// TestFrequenciesChange: what a machine measures is read anew, what it is only called by is not.
func TestFrequenciesChange(t *testing.T) {
	for _, c := range []struct {
		name, path, before, after string
		want                      float64
	}{
		{"cpufreq", "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1000000\n", "2000000\n", 2000},
		{"measured by cpuinfo", "proc/cpuinfo", "cpu MHz : 1000\nflags : fpu aperfmperf\n",
			"cpu MHz : 2000\nflags : fpu aperfmperf\n", 2000},
		{"called by cpuinfo", "proc/cpuinfo", "cpu MHz : 1000\nflags : fpu tsc\n", "cpu MHz : 2000\nflags : fpu tsc\n",
			1000},
	} {
		tree := fstest.MapFS{c.path: file(c.before)}
		p := findProcessors(tree)
		tree[c.path] = file(c.after)
		if mhz, _ := p.frequencies(); len(mhz) != 1 || mhz[0] != c.want {
			t.Errorf("%s: %v, want %v", c.name, mhz, c.want)
		}
	}
}

// TestTemperatures holds sensors, which are found once, against gopsutil, which looks for them anew, on trees of sysfs.
func TestTemperatures(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", "gopsutil reads sysfs there alone")
	}
	for name, tree := range map[string]map[string]string{
		"chips": {
			"class/hwmon/hwmon0/name": "coretemp\n", "class/hwmon/hwmon0/temp1_input": "41000\n",
			"class/hwmon/hwmon0/temp1_label": "Package id 0\n",
			"class/hwmon/hwmon0/temp2_input": "39500\n", "class/hwmon/hwmon0/temp2_label": "Core 0\n",
			"class/hwmon/hwmon0/temp2_max": "90000\n",
			"class/hwmon/hwmon1/name":      "nvme\n", "class/hwmon/hwmon1/temp1_input": "30000\n",
			"class/hwmon/hwmon2/temp1_input": "1000\n",
		},
		"device folders": {"class/hwmon/hwmon0/device/name": "k10temp\n",
			"class/hwmon/hwmon0/device/temp1_input": "55125\n"},
		"zones": {"class/thermal/thermal_zone0/type": "cpu-thermal\n",
			"class/thermal/thermal_zone0/temp": "48312\n", "class/thermal/thermal_zone1/temp": "1000\n"},
		"broken": {"class/hwmon/hwmon0/name": "x\n", "class/hwmon/hwmon0/temp1_input": "hot\n",
			"class/hwmon/hwmon0/temp2_input": "20000\n"},
		"none": {"class/other": ""},
	} {
		root := t.TempDir()
		for path, text := range tree {
			path = filepath.Join(root, "sys", path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("HOST_SYS", filepath.Join(root, "sys"))
		want := map[string]float64(nil)
		all, _ := sensors.SensorsTemperatures()
		for _, s := range all {
			if want == nil {
				want = map[string]float64{}
			}
			want[s.SensorKey] = s.Temperature
		}
		if got := temperatures(os.DirFS(root), findSensors(os.DirFS(root))); !reflect.DeepEqual(got, want) ||
			name != "none" && want == nil {
			t.Errorf("%s: %v, gopsutil says %v", name, got, want)
		}
	}
}
