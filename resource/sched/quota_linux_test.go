package sched

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// TestQuotas: of the groups around a process the one with a quota counts, and of several the one that was stopped
// longest. What was counted before the first call is nobody's.
func TestQuotas(t *testing.T) {
	own := fmt.Sprintf("proc/%d/cgroup", os.Getpid())
	const outer, inner, first = "sys/fs/cgroup/a/", "sys/fs/cgroup/a/b/", "sys/fs/cgroup/cpu/c/"
	second := func(periods, throttled, us int) *fstest.MapFile {
		return file(fmt.Sprintf("usage_usec 9\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", periods, throttled,
			us))
	}
	for name, c := range map[string]struct {
		before, after fstest.MapFS
		want          *resource.QuotaLine
	}{
		"no group": {},
		"no quota": {before: fstest.MapFS{own: file("0::/a\n"), outer + "cpu.max": file("max 100000\n"),
			outer + "cpu.stat": second(0, 0, 0)}, want: &resource.QuotaLine{}},
		"version 2, the group around it": {
			before: fstest.MapFS{own: file("0::/a/b\n"), inner + "cpu.max": file("max 100000\n"),
				inner + "cpu.stat": second(0, 0, 0), outer + "cpu.max": file("150000 100000\n"),
				outer + "cpu.stat": second(40, 30, 5000)},
			after: fstest.MapFS{outer + "cpu.stat": second(50, 39, 6500)},
			want: &resource.QuotaLine{Group: "/sys/fs/cgroup/a", QuotaCPUs: 1.5, Periods: 10, Throttled: 9,
				ThrottledNS: 1500e3}},
		"both have one": {
			before: fstest.MapFS{own: file("0::/a/b\n"), inner + "cpu.max": file("100000 100000\n"),
				inner + "cpu.stat": second(0, 0, 0), outer + "cpu.max": file("150000 100000\n"),
				outer + "cpu.stat": second(0, 0, 0)},
			after: fstest.MapFS{outer + "cpu.stat": second(9, 8, 7), inner + "cpu.stat": second(5, 4, 8)},
			want: &resource.QuotaLine{Group: "/sys/fs/cgroup/a/b", QuotaCPUs: 1, Periods: 5, Throttled: 4,
				ThrottledNS: 8000}},
		"version 1, and the process exits": {
			before: fstest.MapFS{own: file("4:memory:/x\n1:cpuacct,cpu:/c\n0::/\n"),
				first + "cpu.cfs_quota_us": file("50000\n"), first + "cpu.cfs_period_us": file("100000\n"),
				first + "cpu.stat":                   file("nr_periods 7\nnr_throttled 3\nthrottled_time 1000\n"),
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": file("-1\n"), "sys/fs/cgroup/cpu/cpu.stat": second(0, 0, 0)},
			after: fstest.MapFS{own: file("1:cpuacct,cpu:/\n0::/\n"),
				first + "cpu.stat": file("nr_periods 9\nnr_throttled 4\nthrottled_time 1234\n")},
			want: &resource.QuotaLine{Group: "/sys/fs/cgroup/cpu/c", QuotaCPUs: 0.5, Periods: 2, Throttled: 1,
				ThrottledNS: 234}},
	} {
		q := quotas{root: c.before}
		if got := q.since(os.Getpid()); (got == nil) != (c.want == nil) || got != nil && got.Group != "" {
			t.Errorf("%s, first: %+v", name, got)
		}
		maps.Copy(c.before, c.after)
		got := q.since(os.Getpid())
		if got != nil && got.CPUs < 1 {
			t.Errorf("%s: %d CPUs", name, got.CPUs)
		}
		if got != nil {
			got.CPUs = 0
		}
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestQuotaOfKernel: a process that computes all the time and may do so for a fifth of it is stopped by the kernel
// for the rest, and the lines add up to that.
func TestQuotaOfKernel(t *testing.T) {
	const quota, periods = 0.2, 5
	cmd := exec.Command("sh", "-c", "echo; while :; do :; done")
	group := testenv.Quota(t, cmd, quota)
	begun, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := begun.Read(make([]byte, 1)); err != nil { // now it is in its group
		t.Fatal(err)
	}
	c, err := Open(Options{Target: bpf.Target{PIDs: []int{cmd.Process.Pid}}, Poll: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var sum resource.QuotaLine
	var seconds float64
	for sum.Throttled < periods {
		time.Sleep(100 * time.Millisecond)
		line := snap(t, c)
		q := line.CgroupCPU
		if q == nil || q.Group != group || math.Abs(q.QuotaCPUs-quota) > 1e-9 || q.CPUs < 1 {
			t.Fatalf("%+v, want a quota of %v in %s", q, quota, group)
		}
		sum.Periods += q.Periods
		sum.Throttled += q.Throttled
		sum.ThrottledNS += q.ThrottledNS
		seconds += line.ActualS
	}
	// It has one thread, so that one queue is stopped; what is in progress at an end is not counted yet.
	if sum.Periods < sum.Throttled || sum.ThrottledNS == 0 || float64(sum.ThrottledNS)/1e9 > seconds+0.1 {
		t.Errorf("%+v in %v s", sum, seconds)
	}
}
