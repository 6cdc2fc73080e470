package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// strapKeys are the keys of STRAP-LLM's events, objects within them after their key and a dot.
var strapKeys = map[ProfType]string{
	ProfTypeDisk: "dev iops throughput_bytes_s lat_p50_us lat_p95_us lat_p99_us queue_depth_avg queue_depth_max " +
		"requests bytes",
	ProfTypeSyscall: "syscall count lat_avg_us lat_p95_us lat_p99_us lat_max_us bytes bytes_per_call " +
		"throughput_bytes_s top_callers.pid top_callers.comm top_callers.count top_callers.lat_total_ns " +
		"top_callers.bytes",
	ProfTypeMem: "page_faults_total page_faults_by_pid top_faulting_threads.pid top_faulting_threads.tid " +
		"top_faulting_threads.faults psi.avg10 psi.avg60 psi.avg300 rss_kb major_faults",
	ProfTypeSched: "total_off_cpu_pct threads.tid threads.tgid threads.comm threads.off_cpu_pct threads.off_cpu_ns " +
		"threads.switches threads.rq_latency_p95_us threads.rq_latency_p99_us threads.rq_latency_max_us",
	ProfTypeNet: "pid comm tx_bytes_s rx_bytes_s tx_calls rx_calls retransmits",
}

// filled is an event of a type with every field set to something that is not its zero value.
func filled(t *testing.T, of ProfType) ProfEvent {
	t.Helper()
	e := newProfEvent(of)
	fill(t, reflect.ValueOf(e).Elem())
	e.Head().Type = of
	return e
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.ValueOf("k"), reflect.New(v.Type().Elem()).Elem()
		fill(t, value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("<a&b>")
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		if v.CanInt() {
			v.SetInt(1<<53 + 1)
		} else if v.CanUint() && v.Type().Bits() == 64 {
			v.SetUint(1<<63 + 1)
		} else if v.CanUint() {
			v.SetUint(7)
		} else {
			t.Fatalf("cannot fill a %s", v.Type())
		}
	}
}

func TestProfEventsHaveStrapsKeys(t *testing.T) {
	for of, keys := range strapKeys {
		line, err := appendProfEvent(nil, filled(t, of))
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		if err := json.Unmarshal(line, &tree); err != nil {
			t.Fatal(err)
		}
		for _, key := range append(strings.Fields(keys), "ts_ns", "ts", "type", "corr_id", "labels") {
			outer, inner, nested := strings.Cut(key, ".")
			value, ok := tree[outer]
			if nested && ok {
				if list, isList := value.([]any); isList {
					value = list[0]
				} else {
					value = value.(map[string]any)["k"]
				}
				_, ok = value.(map[string]any)[inner]
			}
			if !ok {
				t.Errorf("%s has no key %s: %s", of, key, line)
			}
		}
	}
}

func TestProfEventsComeBackAsTheyWere(t *testing.T) {
	for _, of := range ProfTypes {
		want := filled(t, of)
		line, err := appendProfEvent([]byte("before\n"), want)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutPrefix(string(line), "before\n")
		if !ok || strings.Count(text, "\n") != 1 {
			t.Fatalf("appended %q", line)
		}
		got, err := ParseProfEvent([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %+v, was %+v", of, got, want)
		}
	}
}

func TestAppendProfEventSortsAllKeys(t *testing.T) {
	id := "run_20261121_041500_ab12-3"
	e := &ProfSyscall{ProfHeader: ProfHeader{Type: ProfTypeSync}, Syscall: "futex", Op: "wait", Count: 2,
		TopCallers: []ProfCaller{{PID: 7, Comm: "a<b", Count: 2, LatTotalNS: 9007199254740993}}}
	ProfStamp{Now: time.Unix(1700000000, 5000).UTC(), MonoNS: 9, Interval: time.Second, CorrID: id}.On([]ProfEvent{e})
	line, err := appendProfEvent(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"bytes":0,"bytes_per_call":0,"callers":0,"corr_id":"run_20261121_041500_ab12-3","count":2,` +
		`"interval_s":1,"labels":{},"mono_ns":9,"op":"wait","syscall":"futex","throughput_bytes_s":0,` +
		`"top_callers":[{"bytes":0,"comm":"a<b","count":2,"lat_total_ns":9007199254740993,"pid":7}],` +
		`"ts":"2023-11-14T22:13:20.000005+00:00","ts_ns":1700000000000005000,"type":"sync"}` + "\n"
	if string(line) != want {
		t.Errorf("wrote\n%swant\n%s", line, want)
	}
}

func TestParseProfEventReadsStrapsOwn(t *testing.T) {
	e, err := ParseProfEvent(
		[]byte(`{"comm":"python","corr_id":null,"labels":{"model":"x"},"pid":12,"retransmits":0,` +
			`"rx_bytes_s":1.0,"rx_calls":1,"ts":"2025-01-01T00:00:00+00:00","ts_ns":1735689600000000000,` +
			`"tx_bytes_s":2.5,"tx_calls":2,"type":"net"}`))
	if err != nil {
		t.Fatal(err)
	}
	n := e.(*ProfNet)
	if n.PID != 12 || n.TXBytesS != 2.5 || n.CorrID != nil || n.Labels["model"] != "x" || n.Retransmits == nil {
		t.Errorf("read %+v", n)
	}
}

func TestProfEventsKeepTheirOrderInAnyEncoder(t *testing.T) {
	e := filled(t, ProfTypeNet)
	line, err := appendProfEvent(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode([]ProfEvent{e}); err != nil || plain.String() != "["+strings.TrimSpace(string(line))+"]\n" {
		t.Errorf("%v: %s, alone %s", err, plain.String(), line)
	}
}

func TestParseProfTypes(t *testing.T) {
	for list, want := range map[string][]ProfType{
		"":                           ProfTypes,
		"disk,syscalls,mem,sched":    {ProfTypeDisk, ProfTypeSyscall, ProfTypeMem, ProfTypeSched},
		"sync, net,syscall,syscalls": {ProfTypeSync, ProfTypeNet, ProfTypeSyscall},
		"network":                    nil,
		"disk,":                      nil,
	} {
		got, err := ParseProfTypes(list)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}

func TestCorrID(t *testing.T) {
	for want, id := range map[string]CorrID{
		"run_1_2_ab-1":       {Run: "run_1_2_ab", Interval: 1},
		"run_1_2_ab-12-load": {Run: "run_1_2_ab", Interval: 12, Phase: "load"},
		"run_1_2_ab-12-decode-17-23": {Run: "run_1_2_ab", Interval: 12, Phase: "decode", Tokens: true, First: 17,
			Last: 23},
		"run_1_2_ab-12-prefill-0-0": {Run: "run_1_2_ab", Interval: 12, Phase: "prefill", Tokens: true},
	} {
		if got := id.String(); got != want {
			t.Errorf("%+v: %s, want %s", id, got, want)
		}
	}
}

func FuzzParseProfEvent(f *testing.F) {
	for _, of := range slices.Sorted(maps.Keys(strapKeys)) {
		line, _ := appendProfEvent(nil, newProfEvent(of))
		f.Add(line)
		f.Add([]byte(strings.Replace(string(line), `"type":""`, `"type":"`+string(of)+`"`, 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := ParseProfEvent(line)
		if err != nil {
			return
		}
		once, err := appendProfEvent(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseProfEvent(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, _ := appendProfEvent(nil, again); string(twice) != string(once) {
			t.Errorf("written again\n%s, was\n%s", twice, once)
		}
	})
}

// documented checks that every key of a struct, and of structs in it, stands in a text.
func documented(t *testing.T, of reflect.Type, text string) {
	t.Helper()
	for i := range of.NumField() {
		f := of.Field(i)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			documented(t, inner, text)
		}
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && !strings.Contains(text, "`"+key+"`") {
			t.Errorf("docs/HOST_PROF.md does not document %s", key)
		}
	}
}

func TestProfKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/HOST_PROF.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range ProfTypes {
		documented(t, reflect.TypeOf(newProfEvent(of)).Elem(), string(text))
	}
}

// appendProfEvent appends an event as a line of JSON, compact and with the keys of all its objects sorted, as
// STRAP-LLM writes it.
func appendProfEvent(dst []byte, e ProfEvent) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return dst, fmt.Errorf("write event of type %s: %w", e.Head().Type, err)
	}
	return out.Bytes(), nil
}
