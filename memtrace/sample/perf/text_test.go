package perf

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
)

var updateTexts = flag.Bool("update-texts", false, "write the texts in testdata anew, with the program perf")

// source of accesses: a text or a file.
type reader interface {
	Next(*memtrace.Access) error
	Stats() FileStats
}

// all reads everything.
func all(t testing.TB, r reader) (read []memtrace.Access) {
	t.Helper()
	for {
		var a memtrace.Access
		err := r.Next(&a)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, a)
	}
	if s := r.Stats(); s.Bad != 0 || s.Samples != uint64(len(read)) {
		t.Errorf("%+v, %d were read", s, len(read))
	}
	return read
}

func textOf(t testing.TB, r io.Reader, fields string) *Text {
	t.Helper()
	read, err := NewText(r, TextOptions{Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// script is what the program perf prints of a file.
func script(t testing.TB, file []byte, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.NeedPerf(t), append([]string{"script", "--ns", "-i", path}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out
}

// differ says at which access two lists differ first, as far as the fields of -F allow.
func differ(t *testing.T, got, want []memtrace.Access, fields string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d accesses, want %d", len(got), len(want))
	}
	has := strings.Split(fields, ",")
	for i, w := range want {
		for field, clear := range map[string]func(){
			"time": func() { w.TimeNS = 0 }, "cpu": func() { w.CPU = -1 }, "period": func() { w.Weight = 0 },
			"pid": func() { w.PID = 0 },
			"tid": func() { w.TID = 0 }, "phys_addr": func() { w.Phys = 0 }, "ip": func() { w.IP = 0 },
			"weight": func() { w.Latency = 0 },
			"data_src": func() {
				w.Level = memtrace.LevelUnknown
				if w.Collector == memtrace.CollectorIBS {
					w.Op = memtrace.OpUnknown
				}
			},
		} {
			if !slices.Contains(has, field) {
				clear()
			}
		}
		if got[i] != w {
			t.Fatalf("access %d:\ngot  %+v\nwant %+v", i, got[i], w)
		}
	}
}

// lists are lists of -F. Of those that are marked it can be found out what they are.
var lists = map[string]bool{
	"comm,tid,pid,cpu,time,period,event,addr,data_src,weight,ip,sym,symoff,dso,phys_addr": true,
	"comm,tid,cpu,time,period,event,addr,data_src,weight,ip,sym,dso":                      true,
	"pid,tid,time,event,addr,data_src":                                                    true,
	"tid,time,event,addr,data_src,weight":                                                 true,
	"comm,pid,time,event,addr,data_src,ip,sym":                                            false,
	"comm,tid,time,event,addr":                                                            true,
	"comm,tid,time,event,addr,ip,sym,dso":                                                 true,
	"comm,tid,event,addr,ip":                                                              true,
	"tid,time,event,addr,weight,ip":                                                       false,
	"event,addr,phys_addr":                                                                false,
	"comm,tid,time,event,addr,data_src,weight,ins_lat,ip,sym,dso":                         true,
}

// TestTextOfFamilies: what the program perf prints of files of Intel's and AMD's kind, with many lists of fields,
// says what was written to them.
func TestTextOfFamilies(t *testing.T) {
	for _, f := range families {
		file, want := recordOf(t, f, 200)
		for list, clear := range lists {
			if strings.Contains(list, "ins_lat") && f.name == "intel" || strings.Contains(list, "weight") &&
				f.name != "amd" {
				continue // perf refuses what an event of the file has not
			}
			t.Run(f.name+" "+list, func(t *testing.T) {
				printed := script(t, file, "-F", list)
				differ(t, all(t, textOf(t, bytes.NewReader(printed), list)), want, list)
				if clear {
					if strings.Contains(list, "pid") && !strings.Contains(list, "tid") {
						t.Fatal("nobody finds out whose number it is")
					}
					differ(t, all(t, textOf(t, bytes.NewReader(printed), "")), want, list)
				}
			})
		}
	}
}

// TestTextByDefault: perf script without -F, of which all events have what they have. The texts in testdata are
// those of perf 6.1.
func TestTextByDefault(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			const fields = "comm,tid,cpu,time,period,event,addr,data_src,weight,ip,sym,dso,phys_addr"
			file, want := recordOf(t, f, 40)
			var list []string
			if f.name == "amd" {
				list = []string{"-F", "+addr,+data_src,+weight,+phys_addr"}
			}
			path := filepath.Join("testdata", f.name+".txt")
			if *updateTexts {
				if err := os.WriteFile(path, script(t, file, list...), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			printed, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			differ(t, all(t, textOf(t, bytes.NewReader(printed), "")), want, fields)
			if testing.Short() {
				return
			}
			differ(t, all(t, textOf(t, bytes.NewReader(script(t, file, list...)), "")), want, fields)
		})
	}
}

// TestTextOfChains: the first line of a call chain is the sample's own place.
func TestTextOfChains(t *testing.T) {
	const chains = `# captured on : today
my prog 1  100 [003] 5.000001:          1 page-faults:     7f1d30563000 [unknown] (//anon)
	          16e0ba memset (/usr/lib/x.so)
	           891f5 start_thread (/usr/lib/x.so)

my prog 1  100/101 [003] 5.000002:          1 page-faults:     7f1d30564000 [unknown] (//anon)
	ffffffff816e0ba0 clear_page+0x10 ([kernel.kallsyms])

w  102 5.000003: PERF_RECORD_LOST lost 17
w  102 5.000003: PERF_RECORD_THROTTLE
w  102 5.000003: exceptions:page_fault_user: address=0x7f8781276b70 ip=0x7f8781276b71 error_code=0x14
w  102 5.000003: exceptions:page_fault_user: address=0x7f8781276b70 ip=0x7f8781276b71 error_code=0x6
`
	want := []memtrace.Access{
		{TimeNS: 5_000_001_000, Addr: 0x7f1d30563000, IP: 0x16e0ba, Weight: 1, TID: 100, CPU: 3,
			Collector: memtrace.CollectorFault, Symbol: "memset"},
		{TimeNS: 5_000_002_000, Addr: 0x7f1d30564000, IP: 0xffffffff816e0ba0, Weight: 1, PID: 100, TID: 101, CPU: 3,
			Collector: memtrace.CollectorFault, Symbol: "clear_page"},
		{TimeNS: 5_000_003_000, Addr: 0x7f8781276b70, IP: 0x7f8781276b71, TID: 102, CPU: -1, Op: memtrace.OpRead,
			Collector: memtrace.CollectorFault},
		{TimeNS: 5_000_003_000, Addr: 0x7f8781276b70, IP: 0x7f8781276b71, TID: 102, CPU: -1, Op: memtrace.OpWrite,
			Collector: memtrace.CollectorFault},
	}
	r := textOf(t, strings.NewReader(chains), "")
	if got := all(t, r); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s := r.Stats(); s.Lost != 17 || s.Throttles != 1 || s.Other != 2 {
		t.Errorf("%+v", s)
	}
	one := "w  1 5.000001:  1 page-faults:     7f1d30563000 _Z3fooi (/a b (deleted))\n"
	if _, err := io.ReadAll(strings.NewReader(one)); err != nil {
		t.Fatal(err)
	}
	var a memtrace.Access
	if err := textOf(t, strings.NewReader(one), "").Next(&a); !errors.Is(err, ErrText) ||
		!strings.Contains(err.Error(), "has an address") {
		t.Errorf("a fault whose only address is its instruction's: %+v, %v", a, err)
	}
}

// TestTextOfSymbols: names of C++ have spaces and brackets, and files' names too.
func TestTextOfSymbols(t *testing.T) {
	for tail, want := range map[string]string{
		"7f00 21 |OP LOAD|LVL L1 hit|SNP None|TLB N/A|LCK No|BLK  N/A  117 401000 foo(int, char const*)+0x1a (/lib/x)":      "foo(int, char const*)",
		"7f00 21 |OP LOAD|LVL L1 hit|SNP None|TLB N/A|LCK No|BLK  N/A  117 401000 operator()(x) const (/a (old)/b) 4f00 4K": "operator()(x) const",
		"7f00 21 |OP LOAD|LVL L1 hit|SNP None|TLB N/A|LCK No  117 401000 [unknown] ([unknown])":                             "",
		"7f00 401000 add (/lib/x)":      "add",
		"7f00 401000 dead+0x4 (/lib/x)": "dead",
		"7f00 401000 main":              "main",
		"7f00 99 401000 main (/x)":      "main",
	} {
		var a memtrace.Access
		if err := textOf(t, strings.NewReader("w 1 5.000001: cpu/mem-loads/: "+tail+"\n"), "").Next(&a); err != nil ||
			a.Addr != 0x7f00 || a.IP != 0x401000 || a.Symbol != want {
			t.Errorf("%s: %+v, %v", tail, a, err)
		}
	}
}

// TestTextOfSPE: what perf script prints of events that perf made of a trace of Arm's.
func TestTextOfSPE(t *testing.T) {
	const in = `
       llama-cli  3603 [020]   122.463754:          1              memory:     ffff9c04d000       8688000842 |OP LOAD|LVL L3 or L3 hit|SNP Peer|TLB Walker hit|LCK No|BLK  N/A              aaaac17c3e88 ggml_vec_dot_q8_0_q8_0+0x58 (/usr/lib/libggml-cpu.so)
       llama-cli  3603 [020]   122.463755:          1            l1d-miss:     ffff9c04d040       8688000842 |OP LOAD|LVL L3 or L3 hit|SNP Peer|TLB Walker hit|LCK No|BLK  N/A               213     aaaac17c3e88 [unknown] (/usr/lib/libggml-cpu.so)
       llama-cli  3603 [020]   122.463756:          1          tlb-access:       2a81000104 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK No|BLK  N/A         aaaac17c3e88 [unknown] (/usr/lib/libggml-cpu.so)
`
	r := textOf(t, strings.NewReader(in), "")
	want := memtrace.Access{
		TimeNS: 122463754000, Addr: 0xffff9c04d000, IP: 0xaaaac17c3e88, Weight: 1, TID: 3603, CPU: 20,
		Op: memtrace.OpRead, Level: memtrace.LevelL3,
		Collector: memtrace.CollectorSPE, Symbol: "ggml_vec_dot_q8_0_q8_0",
	}
	second := want
	second.TimeNS, second.Addr, second.Latency, second.Symbol = 122463755000, 0xffff9c04d040, 213, ""
	if got := all(t, r); !slices.Equal(got, []memtrace.Access{want, second}) || r.Stats().NoAddress != 1 {
		t.Errorf("%+v, %+v", got, r.Stats())
	}
}

func TestTextBad(t *testing.T) {
	for what, c := range map[string]struct{ in, fields, want string }{
		"no text":        {"hello\nworld\n", "", "no event is found"},
		"strange fields": {"w 1 5.000001: x: 1 2 3 4 5 6 7\n", "", "say so with the list"},
		"other fields":   {"w 1 5.000001: x: 7f00\n", "tid,time,event,addr,phys_addr", "not the fields of -F"},
		"no address":     {"w 1 5.000001: x: 401000 main (/x)\n", "", "-F +addr"},
	} {
		var a memtrace.Access
		if err := textOf(t, strings.NewReader(c.in), c.fields).Next(&a); !errors.Is(err, ErrText) ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
	}
	for _, list := range []string{"tid,time,addr", "event,addr,brstack"} {
		if _, err := NewText(nil, TextOptions{Fields: list}); !errors.Is(err, ErrText) {
			t.Errorf("%s is taken: %v", list, err)
		}
	}
	r := textOf(t, io.MultiReader(strings.NewReader("w 1 5.000001: x: 7f00\n"),
		strings.NewReader(strings.Repeat("x", 3*maxLine)+"\n??\nw 1 5.000002: x: 7f01")), "")
	var a memtrace.Access
	for i := range 2 {
		if err := r.Next(&a); err != nil || a.Addr != 0x7f00+uint64(i) {
			t.Errorf("around a line that is too long: %+v, %v", a, err)
		}
	}
	if s := r.Stats(); s.Bad != 2 || !strings.Contains(fmt.Sprint(s.FirstBad), "line 2") {
		t.Errorf("%+v", s)
	}
	if err := r.Next(&a); err != io.EOF {
		t.Error(err)
	}
}

func FuzzText(f *testing.F) {
	for _, family := range families {
		b, err := os.ReadFile(filepath.Join("testdata", family.name+".txt"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2000)], "")
	}
	f.Add([]byte("w 1 5.000001: page-faults:  7f00 [unknown] (//anon) 401000 main (/x)\n\t 401000 x\n\n"),
		"event,addr,ip,sym,dso")
	f.Fuzz(func(t *testing.T, b []byte, fields string) {
		r, err := NewText(bytes.NewReader(b), TextOptions{Fields: fields})
		if err != nil {
			return
		}
		var a memtrace.Access
		for err = r.Next(&a); err == nil; err = r.Next(&a) {
			if a.Addr == 0 {
				t.Fatalf("%+v", a)
			}
		}
		if err != io.EOF && !errors.Is(err, ErrText) {
			t.Fatal(err)
		}
	})
}

// BenchmarkText is the price of a line with all fields.
func BenchmarkText(b *testing.B) {
	lines, err := os.ReadFile(filepath.Join("testdata", "intel.txt"))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(lines)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r, err := NewText(bytes.NewReader(lines), TextOptions{})
		if err != nil {
			b.Fatal(err)
		}
		var a memtrace.Access
		for r.Next(&a) == nil {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/line")
}

// BenchmarkData is the price of a sample.
func BenchmarkData(b *testing.B) {
	file, _ := recordOf(b, families[0], 100_000)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		d := data(b, file)
		var a memtrace.Access
		for d.Next(&a) == nil {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/sample")
}

// endless are lines without an end, up to a number of them.
type endless struct {
	lines []byte
	left  int
	rest  []byte
}

func (e *endless) Read(b []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.left == 0 {
			return 0, io.EOF
		}
		e.left--
		e.rest = e.lines
	}
	n := copy(b, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// TestTextOfAnySize: memory does not grow with a text.
func TestTextOfAnySize(t *testing.T) {
	testenv.NotWithRace(t)
	lines, err := os.ReadFile(filepath.Join("testdata", "intel.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	r := textOf(t, &endless{lines: lines, left: 1000}, "")
	var a memtrace.Access
	for i := range 40 * 1000 {
		if i == 40*100 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		if err := r.Next(&a); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+1<<16 {
		t.Errorf("%d bytes are held after a tenth, %d after all", before.HeapAlloc, after.HeapAlloc)
	}
	if err := r.Next(&a); err != io.EOF {
		t.Error(err)
	}
}
