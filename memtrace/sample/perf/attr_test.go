package perf

import (
	"bytes"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

func TestAttrBytes(t *testing.T) {
	a := Attr{
		Type: 1, Config: 2, Period: 3, SampleType: 4, ReadFormat: 5, Flags: 6, Wakeup: 7, BPType: 8, Config1: 9,
		Config2: 10, BranchType: 11, RegsUser: 12,
		StackUser: 13, ClockID: -1, RegsIntr: 15, AuxWatermark: 16, MaxStack: 17, AuxSampleSize: 18, SigData: 19,
	}
	b := a.Append(nil)
	if len(b) != attrSize || le.Uint32(b[4:]) != attrSize {
		t.Errorf("%d bytes, size %d", len(b), le.Uint32(b[4:]))
	}
	back, err := parseAttr(b)
	if err != nil || back != a {
		t.Errorf("%+v, %v", back, err)
	}
	a.Config3 = 20
	b = a.Append([]byte("x"))[1:]
	if back, err = parseAttr(append(b, "of a later version"...)); err != nil || back != a || len(b) != attrSizeNow {
		t.Errorf("%+v, %v", back, err)
	}
	old := bytes.Clone(b[:attrSizeFirst])
	le.PutUint32(old[4:], attrSizeFirst)
	if back, err = parseAttr(old); err != nil || back.Config1 != 9 || back.Config2 != 0 || back.SigData != 0 {
		t.Errorf("the first version: %+v, %v", back, err)
	}
	if _, err = parseAttr(b[:60]); err == nil {
		t.Error("a torn attribute is taken")
	}
}

func TestDataSrc(t *testing.T) {
	const hit = 1 << (lvlShift + 1)
	num := func(n uint64) DataSrc { return DataSrc(n << lvlNumShift) }
	lvl := func(bit uint) DataSrc { return DataSrc(1<<(lvlShift+bit) | hit) }
	for what, c := range map[string]struct {
		d     DataSrc
		op    memtrace.AccessOp
		level memtrace.CacheLevel
	}{
		"nothing":                  {1, memtrace.OpUnknown, memtrace.LevelUnknown},
		"load, L1 by both (Intel)": {opLoad | lvl(3) | num(1), memtrace.OpRead, memtrace.LevelL1},
		"store, L1 by bits":        {opStore | lvl(3), memtrace.OpWrite, memtrace.LevelL1},
		"prefetch, LFB":            {opPrefetch | num(12), memtrace.OpRead, memtrace.LevelLFB},
		"load, local memory":       {opLoad | lvl(7) | num(13), memtrace.OpRead, memtrace.LevelDRAM},
		"load, remote memory": {opLoad | lvl(8) | num(13) | 1<<remoteShift, memtrace.OpRead,
			memtrace.LevelRemoteDRAM},
		"load, other core (AMD)": {opLoad | num(11) | 1<<remoteShift | 1<<hopsShift, memtrace.OpRead,
			memtrace.LevelRemoteCache},
		"load, any cache":               {opLoad | num(11), memtrace.OpRead, memtrace.LevelCache},
		"load, L3 of another":           {opLoad | num(3) | 1<<remoteShift, memtrace.OpRead, memtrace.LevelRemoteCache},
		"load, remote memory by bits":   {opLoad | lvl(9), memtrace.OpRead, memtrace.LevelRemoteDRAM},
		"load, remote cache by bits":    {opLoad | lvl(10), memtrace.OpRead, memtrace.LevelRemoteCache},
		"load, number not available":    {opLoad | lvl(6) | num(15), memtrace.OpRead, memtrace.LevelL3},
		"load, L3 and snooped, of perf": {0x8688000842, memtrace.OpRead, memtrace.LevelL3},
		"store, missed L1": {opStore | 1<<(lvlShift+2) | 1<<(lvlShift+3) | num(1), memtrace.OpWrite,
			memtrace.LevelUnknown},
		"load, CXL":      {opLoad | num(9), memtrace.OpRead, memtrace.LevelCXL},
		"load, uncached": {opLoad | lvl(13), memtrace.OpRead, memtrace.LevelUncached},
	} {
		if c.d.Op() != c.op || c.d.Level() != c.level {
			t.Errorf("%s: %v %v, want %v %v", what, c.d.Op(), c.d.Level(), c.op, c.level)
		}
	}
}

func TestAccessOfSample(t *testing.T) {
	a, body, _ := everything()
	var s Sample
	if err := a.decodeSample(body, &s); err != nil {
		t.Fatal(err)
	}
	want := memtrace.Access{
		TimeNS: 12345, Addr: 0x7f0000001000, Phys: 0xabc000, IP: 0x401000, Latency: 250, Weight: 1000, PID: 10, TID: 11,
		CPU: 3, Op: memtrace.OpRead,
		Level: memtrace.LevelL1, Collector: memtrace.CollectorIBS,
	}
	if got := s.Access(a.SampleType, 5, memtrace.CollectorIBS); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := s.Access(0, 5, memtrace.CollectorPerf); got.Weight != 5 || got.CPU != -1 {
		t.Errorf("fields that a sample lacks: %+v", got)
	}
}

func TestParseCPUs(t *testing.T) {
	if got, err := parseCPUs("0-2,8\n"); err != nil || len(got) != 4 || got[3] != 8 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "3-1", "1-", "0,,1"} {
		if got, err := parseCPUs(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
