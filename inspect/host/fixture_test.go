package host

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A made is a recording that never was: block I/O and system metrics of a number of intervals, drawn from a fixed seed.
type made struct {
	devices, snapshots int
	interval           float64
	strap              bool // STRAP-LLM's bounds
	begin              float64
}

// object is a JSON object in the making.
type object = map[string]any

var madeNames = []string{"nvme0n1", "sda", "dm-0", "loop0", "sdb", "md127", "vda", "mmcblk0p1"}

func (m made) id(device int) int {
	if device == 0 {
		return 259 << 20
	}
	return 8<<20 | 16*device
}

// bucket is a bucket as the file has it.
func (m made) bucket(slot int, count uint64) object {
	low, high := slotLow(slot), slotHigh(slot)
	if m.strap {
		low, high = 1<<slot, 1<<(slot+1)-1
	}
	return object{"slot": slot, "count": count, "bucket_low": low, "bucket_high": high}
}

// build makes the lines of both files. Load rises and falls; when it is high, latencies, page faults and I/O
// pressure are.
func (m made) build() (block, system []string) {
	random := rand.New(rand.NewPCG(7, 7))
	now, drive := m.begin, 0.0
	for i := range m.snapshots {
		now += m.interval * (1.0005 + 0.003*random.Float64())
		drive = 0.9*drive + random.NormFloat64()
		stamp := func(o object) string {
			o["timestamp"], o["interval_s"] = math.Round(now*1e6)/1e6, m.interval
			o["iso_timestamp"] = strings.Replace(utc(now), " UTC", "+00:00", 1)
			text, err := json.Marshal(o)
			if err != nil {
				panic(err)
			}
			return string(text)
		}
		latency, inFlight := []object{}, []object{}
		for d := range m.devices {
			l := Latency{}
			for range max(0, int(60*(1+math.Sin(float64(i)/17+float64(d)))*float64(d+1)+20*drive)) {
				us := math.Exp(5.5 + 0.35*drive/float64(1+5*d) + 0.3*float64(d) + 0.9*random.NormFloat64())
				l.add(int(math.Log2(max(us, 1)))+1, 1)
			}
			buckets := []object{}
			for slot, n := range l {
				if n > 0 {
					buckets = append(buckets, m.bucket(slot, n))
				}
			}
			if len(buckets) > 0 {
				latency = append(latency, object{"device_id": m.id(d), "device_name": madeNames[d], "total": l.Total(),
					"buckets": buckets})
			}
			if depth := int(drive*3 + random.Float64()*4); depth > 0 {
				inFlight = append(inFlight, object{"device_id": m.id(d), "device_name": madeNames[d], "count": depth})
			}
		}
		block = append(block, stamp(object{"latency_histogram": latency, "inflight": inFlight}))
		now += 0.1
		off, faults := object{}, object{}
		for k := range 14 {
			off[fmt.Sprint(1000+k)] = int64((0.3 + 0.06*float64(k)) * 1e9 * m.interval * random.Float64())
		}
		for k := range 5 {
			faults[fmt.Sprint(1000+k)] = max(0, int(50*float64(k)+200*drive+30*random.Float64()))
		}
		stall := func(v float64) object {
			return object{"some": object{"avg10": max(v, 0), "avg60": max(v/2, 0), "avg300": 0, "total": i * 1000}}
		}
		system = append(system, stamp(object{"off_cpu_ns": off, "page_faults": faults,
			"pressure": object{"cpu": stall(20 + 3*random.NormFloat64()), "io": stall(5 + drive), "memory": stall(0)}}))
		now -= 0.1
	}
	return block, system
}

// write writes both files below their usual names and returns the options to analyse them.
func (m made) write(t testing.TB) Options {
	t.Helper()
	block, system := m.build()
	dir := t.TempDir()
	return Options{Block: put(t, dir, "tracepoints.jsonl", strings.Join(block, "\n")+"\n"),
		System: put(t, dir, "system_metrics.jsonl", strings.Join(system, "\n")+"\n")}
}

func put(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func analyzed(t testing.TB, o Options) *Report {
	t.Helper()
	r, err := Analyze(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
