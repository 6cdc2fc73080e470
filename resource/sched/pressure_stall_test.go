package sched

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

const stallText = "some avg10=33.79 avg60=19.22 avg300=10.10 total=17016317826\nfull avg10=0.00 avg60=1.00 " +
	"avg300=2.50 total=7\n"

func TestStalls(t *testing.T) {
	root := fstest.MapFS{
		"proc/pressure/cpu": file(stallText),
		"proc/pressure/io":  file("some avg10=1 avg60=2 avg300=3 total=4 worst=5\n"),
		"proc/9/cgroup":     file("4:memory:/x\n0::/a\n"), "proc/8/cgroup": file("0::/\n"),
		"mnt/a/memory.pressure": file(stallText),
		"proc/self/mounts":      file("tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /mnt cgroup2 rw 0 0\n"),
	}
	machine, err := stalls(root, machinePressure, "")
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(machine)), []string{"cpu", "io"}) {
		t.Fatalf("%+v, %v", machine, err)
	}
	if some := machine["cpu"]["some"]; some != (resource.StallFigures{Avg10: 33.79, Avg60: 19.22, Avg300: 10.1,
		Total: 17016317826}) {
		t.Errorf("%+v", some)
	}
	if full, ok := machine["io"]["full"]; ok || machine["cpu"]["full"].Avg300 != 2.5 {
		t.Errorf("%+v %+v", full, machine)
	}
	if dir := groupOf(root, 9); dir != "mnt/a" || groupOf(root, 8) != "" || groupOf(root, 7) != "" {
		t.Errorf("group in %q, %q, %q", dir, groupOf(root, 8), groupOf(root, 7))
	}
	group, err := stalls(root, "mnt/a", ".pressure")
	if err != nil || len(group) != 1 || group["memory"]["full"].Total != 7 {
		t.Errorf("%+v, %v", group, err)
	}
	if a, b := groupFolder(root, "/mnt/a"), groupFolder(root, "a"); a != "mnt/a" || b != "mnt/a" ||
		groupFolder(root, "/a") != "mnt/a" {
		t.Errorf("folders %q, %q", a, b)
	}
	if none, err := stalls(fstest.MapFS{}, machinePressure, ""); err != nil || none == nil || len(none) != 0 {
		t.Errorf("no PSI: %v, %v", none, err)
	}
	for _, bad := range []string{"some avg10=x avg60=0 avg300=0 total=0\n", "some avg10=1\n", "full\n"} {
		if _, err := stalls(fstest.MapFS{"proc/pressure/cpu": file(bad)}, machinePressure, ""); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// What is read is what stands in the kernel's files: totals between two readings of the files by hand, the same kinds.
func TestStallsEqualKernel(t *testing.T) {
	totals := func() map[string]resource.HostStall {
		all := map[string]resource.HostStall{}
		for _, name := range resources {
			text, err := os.ReadFile("/proc/pressure/" + name)
			if err != nil {
				testenv.Beyond(t, "a kernel with PSI", err.Error())
			}
			if all[name], err = parseStall(string(text)); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	before := totals()
	got, err := stalls(os.DirFS("/"), machinePressure, "")
	if err != nil {
		t.Fatal(err)
	}
	after := totals()
	for name := range before {
		for kind := range before[name] {
			if v := got[name][kind].Total; v < before[name][kind].Total || v > after[name][kind].Total {
				t.Errorf("%s %s: total %v is not between %v and %v", name, kind, v, before[name][kind].Total,
					after[name][kind].Total)
			}
		}
	}
}

// A control group of version 2 has figures of its own.
func TestGroupStalls(t *testing.T) {
	testenv.NeedRoot(t)
	root := os.DirFS("/")
	dir := filepath.Join("/", machine.UnifiedMount(root), "llamatap-pressure-test")
	if err := os.Mkdir(dir, 0o755); err != nil {
		testenv.Beyond(t, "a control group of version 2", err.Error())
	}
	defer os.Remove(dir)
	got, err := stalls(root, dir[1:], ".pressure")
	if err != nil || len(got) != len(resources) {
		t.Fatalf("%+v, %v", got, err)
	}
}

func FuzzParseStall(f *testing.F) {
	f.Add(stallText)
	f.Add("some avg10=1\n\nfull")
	f.Fuzz(func(t *testing.T, text string) {
		if stall, err := parseStall(text); err == nil && len(stall) > len(text) {
			t.Errorf("%d kinds of %q", len(stall), text)
		}
	})
}
