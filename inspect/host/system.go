package host

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/resource"
)

// The metrics that are held against the latency, in A-83's order.
const (
	metricOffCPU = iota // off_cpu_ms: sum over all ids
	metricFaults        // page_faults_per_s
	metricCPU           // cpu_pressure, and so on: share of time in percent
	metricIO
	metricMemory
	metrics
)

// metricNames are their names, by number.
var metricNames = [metrics]string{"off_cpu_ms", "page_faults_per_s", "cpu_pressure", "io_pressure", "memory_pressure"}

// systemLine is a line of system metrics as A-72 has it, with the keys that llamatap adds and that are analysed.
type systemLine struct {
	stamp
	OffCPU   map[string]number                       `json:"off_cpu_ns"`
	Faults   map[string]number                       `json:"page_faults"`
	Pressure map[string]map[string]map[string]number `json:"pressure"`
	Threads  []threadLine                            `json:"threads"`
	Procs    []processLine                           `json:"processes"`
	Quota    *quotaLine                              `json:"cgroup_cpu"`
	// What a line of block I/O has instead.
	Block any `json:"latency_histogram"`
}

// threadLine is how a thread spent the interval (resource.ThreadLine).
type threadLine struct {
	TID      number `json:"tid"`
	TGID     number `json:"tgid"`
	Comm     word   `json:"comm"`
	Lived    number `json:"lived_ns"`
	OnCPU    number `json:"oncpu_ns"`
	Runnable number `json:"runnable_wait_ns"`
	Disk     number `json:"blocked_disk_ns"`
	Lock     number `json:"blocked_lock_ns"` // parse leaves what delayed the thread
	Other    number `json:"blocked_other_ns"`
	Idle     number `json:"idle_ns"`
	Futex    number `json:"futex_ns"`
	// The parts of Futex that are not a delay.
	FutexIdle    number `json:"futex_idle_ns"`
	FutexUnknown number `json:"futex_unknown_ns"`
	Role         word   `json:"role"`
}

// subtractSleep subtracts the sleep that is not a delay from the thread's wait for locks, and returns how much of it
// the line's off_cpu_ns still holds: in files of recorders that did not decide it, where all of the wait for locks may
// have been in futexes, all of it.
func (t *threadLine) subtractSleep() (undecided float64) {
	if !t.Lock.known {
		return 0
	}
	if t.Role == "" && t.Idle.known && t.Lived.known {
		ns := func(n number) *int64 { return new(int64(max(0, min(n.v, maxNumber)))) }
		line := resource.ThreadLine{LivedNS: *ns(t.Lived), FutexNS: ns(t.Lock), IdleNS: ns(t.Idle)}
		line.Judge(false, resource.GraphTime{})
		t.Role = word(line.Role)
		t.FutexIdle, t.FutexUnknown = number{float64(*line.FutexIdleNS), true},
			number{float64(*line.FutexUnknownNS), true}
		undecided = t.FutexIdle.v + t.FutexUnknown.v
	}
	t.Lock.v = max(0, t.Lock.v-t.FutexIdle.v-t.FutexUnknown.v)
	return undecided
}

// quotaLine is what a CPU quota did (resource.QuotaLine).
type quotaLine struct {
	Group       word   `json:"group"`
	QuotaCPUs   number `json:"quota_cpus"`
	CPUs        number `json:"cpus"`
	Periods     number `json:"periods"`
	Throttled   number `json:"throttled_periods"`
	ThrottledNS number `json:"throttled_ns"`
}

// processLine names a process (resource.ProcessLine).
type processLine struct {
	PID  number `json:"pid"`
	Comm word   `json:"comm"`
}

// ByReason is time off the CPU that delayed threads, by its reason, in ms.
type ByReason struct {
	Runnable float64 `json:"runnable_wait_ms"` // no processor was free
	Disk     float64 `json:"blocked_disk_ms"`
	Lock     float64 `json:"blocked_lock_ms"`
	Other    float64 `json:"blocked_other_ms"`
	// Not in the sum: what threads waited for work, and slept in futexes for a reason that is unknown.
	ForWork float64 `json:"idle_ms"`
	Unknown float64 `json:"futex_unknown_ms"`
}

// Reasons are the words for delays, and Values the figures, in one order.
var Reasons = [...]string{"no CPU free", "disk", "lock", "other"}

// Values are the figures in the order of [Reasons].
func (b *ByReason) Values() [len(Reasons)]float64 {
	return [...]float64{b.Runnable, b.Disk, b.Lock, b.Other}
}

// add adds what a thread waited.
func (b *ByReason) add(t *threadLine) {
	b.Runnable += t.Runnable.v / 1e6
	b.Disk += t.Disk.v / 1e6
	b.Lock += t.Lock.v / 1e6
	b.Other += t.Other.v / 1e6
	b.ForWork += (t.Idle.v + t.FutexIdle.v) / 1e6
	b.Unknown += t.FutexUnknown.v / 1e6
}

// systemSnapshot is what a line of system metrics says.
type systemSnapshot struct {
	time, seconds float64
	how           recording
	offset        float64
	metric        [metrics]float64 // NaN where not known
	offCPU        map[string]number
	faults        map[string]number
	threads       []threadLine
	unknown       number // ms in futexes for a reason that is unknown
	processes     []processLine
	quota         *quotaLine
}

// errNoSystem is what is wrong with an object that is not a snapshot of system metrics.
var errNoSystem = errors.New("none of off_cpu_ns, page_faults and pressure in it")

// errBlockLine is what is wrong with a line of block I/O among those of system metrics.
var errBlockLine = errors.New("a line of block I/O, not of system metrics")

// errNoTime is what is wrong with a snapshot of which the time is not known.
var errNoTime = errors.New("neither timestamp nor iso_timestamp in it")

func parseSystem(text []byte) (*systemSnapshot, error) {
	var line systemLine
	if err := decode(text, &line); err != nil {
		return nil, err
	}
	if line.OffCPU == nil && line.Faults == nil && line.Pressure == nil {
		if line.Block != nil {
			return nil, errBlockLine
		}
		return nil, errNoSystem
	}
	s := &systemSnapshot{time: line.when(), seconds: line.interval(), how: line.recording, offset: line.offset(),
		offCPU: line.OffCPU, faults: line.Faults, threads: line.Threads, processes: line.Procs, quota: line.Quota}
	if math.IsNaN(s.time) {
		return nil, errNoTime
	}
	for m := range s.metric {
		s.metric[m] = math.NaN()
	}
	for i := range s.threads {
		t := &s.threads[i]
		undecided := t.subtractSleep()
		id := strconv.FormatInt(int64(t.TID.v), 10)
		if off, ok := s.offCPU[id]; ok && undecided > 0 {
			off.v = max(0, off.v-undecided)
			s.offCPU[id] = off
		}
		s.unknown = number{s.unknown.v + t.FutexUnknown.v/1e6, s.unknown.known || t.FutexUnknown.known}
	}
	if line.OffCPU != nil {
		s.metric[metricOffCPU] = sum(line.OffCPU) / 1e6
	}
	if line.Faults != nil {
		s.metric[metricFaults] = sum(line.Faults) / safeInterval(s.seconds)
	}
	for m, of := range map[int]string{metricCPU: "cpu", metricIO: "io", metricMemory: "memory"} {
		if v := pressure(line.Pressure[of]); v.known {
			s.metric[m] = v.v
		}
	}
	return s, nil
}

// pressure is the figure of a resource that is compared: of the scope some, else of the first other one that there
// is; the mean of the last 10 s, else of 60 s or 300 s, else the total.
func pressure(scopes map[string]map[string]number) number {
	figures := scopes["some"]
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		if len(figures) == 0 {
			figures = scopes[scope]
		}
	}
	return first(figures["avg10"], figures["avg60"], figures["avg300"], figures["total"])
}

// safeInterval is an interval to divide by: one that is not known counts as a second, as in A.
func safeInterval(seconds float64) float64 {
	if seconds > 0 {
		return seconds
	}
	return 1
}

// sum adds in the order of the ids, so that the same file gives the same bits.
func sum(of map[string]number) (total float64) {
	for _, id := range slices.Sorted(maps.Keys(of)) {
		total += of[id].v
	}
	return total
}

// maxIDs bounds how many ids of processes and threads are kept at a time.
const maxIDs = 1 << 15

// ids adds something up per id. Of more ids than maxIDs the smaller half is forgotten, now and then.
type ids struct {
	sums map[string]*idSum
	// forgotten is how many times an id was forgotten, and most the largest sum that one had by then.
	forgotten int64
	most      float64
}

// idSum is what was added up of an id.
type idSum struct {
	v    float64
	by   ByReason // of threads, where it is known
	name string   // as it was last
	role string   // of threads: the one that says most of all that it had
	tgid int64
}

// add adds to an id's sum.
func (t *ids) add(id string, v float64) {
	if v <= 0 {
		return
	}
	if t.sums == nil {
		t.sums = map[string]*idSum{}
	}
	of := t.sums[id]
	if of == nil {
		if len(t.sums) >= maxIDs {
			for _, name := range t.order()[maxIDs/2:] { // make room
				t.forgotten++
				t.most = max(t.most, t.sums[name].v)
				delete(t.sums, name)
			}
		}
		of = &idSum{}
		t.sums[id] = of
	}
	of.v += v
}

// order lists the ids, the largest sum first.
func (t *ids) order() []string {
	return slices.SortedFunc(maps.Keys(t.sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.sums[b].v, t.sums[a].v), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

// merge puts a later snapshot together with this one: sums of what was counted, means of what was measured.
func (s *systemSnapshot) merge(next *systemSnapshot) {
	a, b := safeInterval(s.seconds), safeInterval(next.seconds)
	for m := range s.metric {
		x, y := s.metric[m], next.metric[m]
		switch {
		case math.IsNaN(x):
			s.metric[m] = y
		case math.IsNaN(y):
		case m == metricOffCPU:
			s.metric[m] = x + y
		default:
			s.metric[m] = (x*a + y*b) / (a + b)
		}
	}
	s.time, s.seconds = next.time, a+b
}
