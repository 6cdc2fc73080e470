package perf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
)

func data(t testing.TB, file []byte) *Data {
	t.Helper()
	d, err := NewData(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDataOfFamilies: what was written to a file of each kind is read from it.
func TestDataOfFamilies(t *testing.T) {
	for _, f := range families {
		file, want := recordOf(t, f, 500)
		d := data(t, file)
		if got := all(t, d); !slices.Equal(got, want) {
			t.Errorf("%s: first %+v\nwant %+v", f.name, got[0], want[0])
		}
		if d.Clock() != "CLOCK_MONOTONIC" || len(d.Events()) != len(f.events) ||
			d.Events()[0].Name != f.events[0].Name || d.Stats().Other != 2 {
			t.Errorf("%s: clock %q, events %+v, %+v", f.name, d.Clock(), d.Events(), d.Stats())
		}
	}
}

// TestDataTorn: of a file that was cut anywhere, or whose bytes are wrong, whole records are read, and then an
// error says so.
func TestDataTorn(t *testing.T) {
	file, want := recordOf(t, families[0], 20)
	for n := range len(file) {
		d, err := NewData(bytes.NewReader(file[:n]), int64(n))
		if err != nil {
			if !errors.Is(err, ErrData) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		var a memtrace.Access
		k := 0
		for err = d.Next(&a); err == nil; err = d.Next(&a) {
			if want[k].Addr != a.Addr {
				t.Fatalf("%d bytes: access %d is %+v", n, k, a)
			}
			k++
		}
		if err == io.EOF && k != len(want) || err != io.EOF && !errors.Is(err, ErrData) {
			t.Fatalf("%d bytes: %d accesses: %v", n, k, err)
		}
	}
	for what, c := range map[string][]byte{
		"big-endian": append([]byte("2ELIFREP"), file[8:]...), "not perf": []byte(strings.Repeat("GGUF", 100)),
		"no end": slices.Concat(file[:48], words(0), file[56:]), "empty": {},
	} {
		if _, err := NewData(bytes.NewReader(c), int64(len(c))); !errors.Is(err, ErrData) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDataCounts: what was lost is counted; samples without an address are passed over.
func TestDataCounts(t *testing.T) {
	f := families[2]
	e := f.events[0]
	id := words(pair(1, 1), 5, 0, e.IDs[0])
	sample := func(addr uint64) []byte {
		return record(recordSample, 2, words(e.IDs[0], 1, pair(1, 1), 5, addr, 0, 1, 9, load, 0))
	}
	d := data(t, dataOf(t, f.events,
		record(recordLost, 0, words(e.IDs[0], 7), id), record(recordLostSamples, 0, words(3), id),
		record(recordThrottle, 0, words(1, 2, 3), id),
		record(recordAux, 0, words(0, 64, 0x100), id), record(recordAux, 0, words(64, 64, 5), id),
		record(recordAux, 0, words(128, 64, 8), id), record(recordAux, 0, words(192, 64, 1), id),
		sample(0), sample(5), record(recordSample, 2, words(e.IDs[0], 1)), record(99, 0, words(1))))
	var a memtrace.Access
	if err := d.Next(&a); err != nil || a.Addr != 5 {
		t.Errorf("%+v, %v", a, err)
	}
	// A sample that is too short is bad; a record of perf that is not known is no matter.
	for d.Next(&a) == nil {
		t.Errorf("read: %+v", a)
	}
	if s := d.Stats(); s.Lost != 10 || s.Throttles != 1 || s.Gaps != 2 || s.Collided != 1 || s.NoAddress != 1 ||
		s.Samples != 1 || s.Bad != 1 {
		t.Errorf("%+v", s)
	}
}

// toucher is a program that touches pages in several threads.
const toucher = `#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void * touch(void * n) { char * p = malloc(1 << 20); memset(p, 1, 1 << 20); return (void) n, p; }
int main(void) { pthread_t t; for (int i = 0; i < 3; i++) { pthread_create(&t, 0, touch, 0); pthread_join(t, 0); } return 0; }
`

// TestRecordedHere records page faults with the program perf, as a file, packed, and through a pipe, and reads
// them; and its text.
func TestRecordedHere(t *testing.T) {
	testenv.NeedRoot(t)
	perf := testenv.NeedPerf(t)
	dir := t.TempDir()
	source, program := filepath.Join(dir, "t.c"), filepath.Join(dir, "my prog 1")
	if err := os.WriteFile(source, []byte(toucher), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.NeedCC(t), "-o", program, source, "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const fields = "comm,pid,tid,time,event,addr,ip,sym,dso"
	for what, args := range map[string][]string{"file": {"-o", "perf.data"}, "packed": {"-z", "-o", "perf.data"},
		"pipe": {"-o", "-"}, "chains": {"-g", "-o", "perf.data"},
		"two events": {"-e", "context-switches", "-o", "perf.data"}} {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command(perf, slices.Concat([]string{"record", "-B", "-N", "-k", "CLOCK_MONOTONIC", "-d", "-e",
				"page-faults", "-c", "1"}, args, []string{"--", program})...)
			cmd.Dir = t.TempDir()
			file, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v", cmd.Args, err)
			}
			if what != "pipe" {
				if file, err = os.ReadFile(filepath.Join(cmd.Dir, "perf.data")); err != nil {
					t.Fatal(err)
				}
			}
			d := data(t, file)
			got := all(t, d)
			printed := script(t, file, "-F", fields)
			want := all(t, textOf(t, bytes.NewReader(printed), fields))
			guessed := all(t, textOf(t, bytes.NewReader(printed), ""))
			if len(want) < 3*256 || d.Stats().Lost != 0 || d.Clock() != "CLOCK_MONOTONIC" {
				t.Fatalf("%d accesses, %+v, clock %q", len(want), d.Stats(), d.Clock())
			}
			byTime := func(a, b memtrace.Access) int { return int(a.TimeNS - b.TimeNS) }
			slices.SortStableFunc(got, byTime)
			for i := range want {
				want[i].Weight, want[i].Symbol, guessed[i].Weight, guessed[i].Symbol = 1, "", 1, ""
				got[i].CPU = -1
				if what == "chains" {
					got[i].IP, want[i].IP, guessed[i].IP = 0, 0, 0 // perf prints those of a file's begin
				}
			}
			for name, other := range map[string][]memtrace.Access{"as text": want,
				"as text without its fields": guessed} {
				if i := different(got, other); i >= 0 {
					t.Errorf("%s: %d and %d accesses, %d is %+v and %+v", name, len(got), len(other), i,
						got[min(i, len(got)-1)], other[min(i, len(other)-1)])
				}
			}
		})
	}
}

// different is where two lists differ first, -1: nowhere.
func different(a, b []memtrace.Access) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func FuzzData(f *testing.F) {
	for _, family := range families {
		file, _ := recordOf(f, family, 5)
		f.Add(file)
	}
	f.Add(speFile(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := NewData(bytes.NewReader(b), int64(len(b)))
		var a memtrace.Access
		for err == nil {
			err = d.Next(&a)
		}
		if err != io.EOF && !errors.Is(err, ErrData) {
			t.Fatal(err)
		}
	})
}

// spePackets is a trace: a load that missed L1, a store, a branch, and padding between them.
func spePackets() []byte {
	packet := func(h byte, v uint64, n int) []byte { return append([]byte{h}, words(v)[:n]...) }
	return slices.Concat(
		packet(0xb0, 0x0000_aaaa_0000_1000|1<<63, 8), packet(0x64, 77, 4), packet(0x49, 0, 1),
		packet(0x52, 1<<1|1<<2|1<<3|1<<8, 2),
		packet(0x98, 123, 2), packet(0x99, 5, 2), packet(0xb2, 0x00ff_7f00_0000_2000&^(0xff<<48)|0x4a<<56, 8),
		packet(0xb3, 0x1234_5000|1<<63, 8), packet(0x43, 0xb, 1), packet(0x71, 5000, 8),
		[]byte{0, 0, 0}, packet(0xb0, 0xffff_0000_0000_2000&(1<<56-1)|1<<61|1<<63, 8), packet(0x64, 78, 4),
		packet(0x49, 1, 1), packet(0x42, 1<<1|1<<2, 1), packet(0xb2, 0x00f0_0000_0000_3000, 8), packet(0x71, 6000, 8),
		packet(0xb0, 0x1000, 8), packet(0x4a, 1, 1), packet(0x71, 7000, 8), []byte{0x20, 0x00})
}

// speFile is what perf record -e arm_spe// writes.
func speFile(t testing.TB) []byte {
	const pmu = 9
	event := Event{Name: "arm_spe_0//", IDs: []uint64{31, 32}, Attr: Attr{
		Type: pmu, Period: 1000, SampleType: sampleIP | sampleTID | sampleTime | sampleCPU | sampleIdentifier,
		Flags: flagSampleIDAll, Config: 1 << 16,
	}}
	trace := spePackets()
	for len(trace)%8 != 0 {
		trace = append(trace, 0)
	}
	auxtrace := func(index, cpu uint32) []byte {
		return append(record(recordAuxtrace, 0, words(uint64(len(trace)), 0, 1, pair(index, ^uint32(0)), pair(cpu, 0))),
			trace...)
	}
	return dataOf(t, []Event{event},
		record(recordAuxtraceInfo, 0, words(traceSPE, pmu, 1)), comm(77, 77, "llama", 31),
		record(recordTimeConv, 0, words(0, 10, 0)), auxtrace(0, 0), auxtrace(1, 1))
}

// TestDataOfSPE: a trace of Arm's is read from a file; the program perf reads the same.
func TestDataOfSPE(t *testing.T) {
	d := data(t, speFile(t))
	first := memtrace.Access{
		TimeNS: 50_000, Addr: 0x7f00_0000_2000, Phys: 0x1234_5000, IP: 0xaaaa_0000_1000, Latency: 123, Weight: 1000,
		TID: 77, Op: memtrace.OpRead,
		Level: memtrace.LevelL3, Collector: memtrace.CollectorSPE,
	}
	second := memtrace.Access{
		TimeNS: 60_000, Addr: 0xfff0_0000_0000_3000, IP: 0xffff_0000_0000_2000, Weight: 1000, TID: 78,
		Op: memtrace.OpWrite, Level: memtrace.LevelL1,
		Collector: memtrace.CollectorSPE,
	}
	want := []memtrace.Access{first, second, first, second}
	want[2].CPU, want[3].CPU = 1, 1
	if got := all(t, d); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s := d.Stats(); s.NoAddress != 2 {
		t.Errorf("%+v", s)
	}
}

// TestTraceAsPerfReads: the program perf finds the same packets in a trace.
func TestTraceAsPerfReads(t *testing.T) {
	var want, now []string
	for line := range strings.Lines(string(script(t, speFile(t), "--itrace=M", "--dump-raw-trace"))) {
		if !strings.HasPrefix(line, ".  0") || len(line) < 60 {
			continue
		}
		what := strings.TrimSpace(line[60:]) // after the bytes
		if what == "" {
			continue
		}
		switch word := strings.Fields(what); word[0] {
		case "VA", "PA", "LD", "ST", "CONTEXT":
			now = append(now, strings.Join(word[:min(2, len(word))], " "))
		case "LAT":
			if word[2] == "TOT" {
				now = append(now, what)
			}
		case "TS":
			want = append(want, strings.Join(append(now, what), ","))
			now = nil
		}
	}
	const low = 1<<56 - 1
	var got []string
	if used, bad := decodeSPE(spePackets(), 0, func(r *speRecord) {
		var say []string
		add := func(is bool, format string, v ...any) {
			if is {
				say = append(say, fmt.Sprintf(format, v...))
			}
		}
		add(r.Context != 0, "CONTEXT %#x", r.Context)
		add(r.Op == memtrace.OpRead, "LD GP-REG")
		add(r.Op == memtrace.OpWrite, "ST GP-REG")
		add(r.Latency != 0, "LAT %d TOT", r.Latency)
		add(r.Addr != 0, "VA %#x", r.Addr&low)
		add(r.Phys != 0, "PA %#x", r.Phys)
		got = append(got, strings.Join(append(say, fmt.Sprintf("TS %d", r.Timestamp)), ","))
	}); used != len(spePackets()) || bad != 0 {
		t.Errorf("%d of %d bytes, %d bad", used, len(spePackets()), bad)
	}
	for i := range want {
		want[i] = strings.Replace(want[i], "VA 0x4a00", "VA 0x", 1) // the tag
	}
	if !slices.Equal(got, want[:min(3, len(want))]) || len(want) != 6 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
