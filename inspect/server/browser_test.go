//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// put writes an event, with a time.
func put(out io.Writer, at time.Time, event string) {
	ns := at.UnixNano()
	fmt.Fprintf(out, `{%s,"timestamp":"%d","unix_ns":%d,"mono_ns":%d,"session_id":"s","ctx":0,"source":"measured"}`+
		"\n", event, ns/1000, ns, ns)
}

// pageTokens writes the events of generated tokens, a millisecond apart until now: a graph of two layers each.
func pageTokens(out io.Writer, from, n int) {
	begin := time.Now().Add(-time.Duration(n) * time.Millisecond)
	for i := from; i < from+n; i++ {
		put := func(format string, args ...any) {
			put(out, begin.Add(time.Duration(i-from)*time.Millisecond), fmt.Sprintf(format, args...))
		}
		for layer := range 2 {
			for k, component := range []string{"attention", "mlp"} {
				put(`"event":"compute_execution","exec":%d,"layer_id":%d,"component_type":"%s","operation":"%s",`+
					`"phase":"decode","node_count":3,"time_source":"op","duration_ns":%d`, i, layer, component,
					[]string{"SOFT_MAX", "MUL_MAT"}[k], 200_000+100_000*layer+90_000*k)
			}
		}
		put(`"event":"kv_cache_operation","cache_type":"key_value","cache":"base","layer_id":0,"seq_id":%d,"cells":1,`+
			`"cache_operation":"allocate"`, i%3)
		put(`"event":"expert_routing","exec":%d,"layer_id":1,"experts":[%d,7]`, i, i%6)
		put(`"event":"output_token","exec":%d,"token_text":" word%d","seq_id":%d,"latency_ns":1500000`, i, i, i%3)
		put(`"event":"graph_execution","exec":%d,"phase":"decode","tokens":1,"prefill_tokens":0,"decode_tokens":1,`+
			`"duration_ns":1300000,"timed_ns":1200000`, i)
	}
}

// perToken is how many events there are of a token.
const perToken = 8

// served is a page on a folder of runs, of which one is live.
type served struct {
	*testenv.Browser
	url, id string
	log     io.WriteCloser
	run     *rundir.Dir
	levels  chan string
}

func servePage(t *testing.T, sealed int) *served {
	t.Helper()
	testenv.Once(t, "TestLive")
	t.Parallel()
	dir := t.TempDir()
	for i := range sealed {
		run := filepath.Join(dir, "gopher-6m-q8_0", fmt.Sprintf("run_20261101_10%02d%02d_%04x", i/60, i%60, i))
		write(t, filepath.Join(run, "resource.jsonl"), log7)
		write(t, filepath.Join(run, "manifest.json"), `{"version":1}`)
	}
	run, err := rundir.Create(dir, "gopher-6m-q8_0", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(run.Path(), "metadata.json"), metadata)
	write(t, filepath.Join(run.Path(), ".system_metrics.jsonl.part"), `{"timestamp":1,"interval_actual_s":1,`+
		`"off_cpu_ns":{"1":90000000},"page_faults":{"1":12},"pressure":{"cpu":{"some":{"avg10":3.5}}}}`+"\n")
	p := &served{id: run.ID(), run: run, levels: make(chan string, 1)}
	if p.log, err = run.Create("resource.jsonl"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	put(p.log, now, `"event":"resource_session_start","level":"DETAILED","events_version":1`)
	put(p.log, now, `"event":"memory_allocation","memory_type":"ram","allocation_bytes":8388608,"live_bytes":8388608`)
	put(p.log, now, `"event":"rapl_sample","domain":"package-0","window_ns":100000000,"energy_j":1.5`)
	put(p.log, now, `"event":"loss","kind":"sampling_state","cause":"rate","count":3`)
	pageTokens(p.log, 0, 50)
	addr, _ := listen(t, newServer(t, Options{Dir: dir, Token: token, Wait: nil,
		Control: func(_ string, c Command) (json.RawMessage, error) {
			if c.Command == "level" {
				p.levels <- c.Level
			}
			return json.RawMessage(`{"pid":4711,"level":"DETAILED"}`), nil
		},
		Report: func(_ context.Context, _ string, out io.Writer) error {
			_, err := io.WriteString(out, `<!doctype html><p id="p"></p>`+
				`<script>document.getElementById("p").textContent = "read"</script>`)
			return err
		}}))
	p.url = "http://" + addr + "/"
	p.Browser = testenv.NeedBrowser(t)
	return p
}

// TestPageInBrowser clicks through the page: runs and their filter, a live run, its table of times, events, level,
// and the report of one that has ended.
func TestPageInBrowser(t *testing.T) {
	p := servePage(t, 200)
	p.Open(p.url, 1440, 900, false)
	p.Until(`by("status").textContent.includes("Open the link")`)
	if errors := p.Errors(); len(errors) == 0 || !strings.Contains(strings.Join(errors, ""), "401") {
		t.Errorf("without a token: %v", errors)
	}
	p.Open(p.url+"#token="+token, 1440, 900, false)
	p.Until(`by("runs").children.length === 201 && location.hash === ""`)
	p.Errors()
	p.Eval(`f = by("filter"), f.value = "0007 sealed", f.dispatchEvent(new Event("input"))`, nil)
	p.Until(`by("runs").children.length === 1 && by("count").textContent === "1 of 201 runs"`)
	p.Eval(`f.value = "", f.dispatchEvent(new Event("input"))`, nil)
	p.look(t, "runs", "")
	p.Open(p.url, 1440, 900, false)
	p.Until(`by("runs").children.length === 201`)
	p.Eval(`document.querySelector("#runs a").click()`, nil) // the newest
	p.Until(`by("run").textContent === "` + p.id + `" && by("state").textContent === "running"`)
	for _, text := range []string{"word49", "attention", "a square is a cell", "7 most", "8.00 MiB", "15.0 W",
		"pressure, 10 s", "3 sampling_state", "process 4711"} {
		p.Until(fmt.Sprintf("by('live').textContent.includes(%q)", text))
	}
	p.Until(`newest.length === 200 && by("events").textContent.includes("word49")`)
	p.Eval(`document.querySelector("[data-by=layers]").click()`, nil)
	p.Until(`by("times").textContent.startsWith("0") && table === "layers"`)
	p.Eval(`k = by("kind"), k.value = "loss", k.dispatchEvent(new Event("change"))`, nil)
	p.Until(`/^[^\n]* loss [^\n]*count:3[^\n]*$/.test(by("events").textContent)`)
	p.Eval(`[...document.querySelectorAll("#level button")].find((b) => b.textContent === "VERBOSE").click()`, nil)
	if level := <-p.levels; level != "VERBOSE" {
		t.Errorf("level %q", level)
	}
	pageTokens(p.log, 50, 5)
	p.Until(`by("text").textContent.includes("word54")`)
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.run.Seal(); err != nil {
		t.Fatal(err)
	}
	p.Until(`by("state").textContent === "sealed" && !by("report").hidden`)
	p.accessible(t)
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("the page reports %s", errors)
	}
	p.look(t, "sealed", "#run="+p.id)
	p.Eval(`location.hash = "#run=nosuch"`, nil) // nothing of the run before is below another one's name
	p.Until(`by("problem").textContent.includes("there is no run")`)
	var left int
	if p.Eval(`document.querySelectorAll("article:not([hidden]), #report:not([hidden])").length`, &left); left > 0 {
		t.Errorf("%d figures of another run", left)
	}
	p.Errors()
	p.Eval(`location.hash = "#run=`+p.id+`"`, nil)
	p.Until(`by("state").textContent === "sealed" && by("problem").textContent === ""`)
	p.Eval(`draw({run: "r", state: "sealed", losses: [], unread_bytes: 5 << 20})`, nil) // a long log is read in steps
	p.Until(`by("about").textContent.includes("5.00 MiB of the log are not read yet")`)
	p.Eval(`by("report").click()`, nil)
	p.Until(`document.getElementById("p")?.textContent === "read"`) // its script runs below its policy
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("the report reports %s", errors)
	}
}

// relay passes connections on to addr. cut ends those that there are.
func relay(t *testing.T, addr string) (at string, cut func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			go io.Copy(far, near)
			go io.Copy(near, far)
		}
	}()
	return listener.Addr().String(), func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			conn.Close()
		}
		open = nil
	}
}

// TestPageOfHost: the page shows a live run of another host, sets its level, goes on when the host is back, and opens
// its report.
func TestPageOfHost(t *testing.T) {
	p := servePage(t, 3)
	at, cut := relay(t, strings.Trim(p.url, "htp:/"))
	far := Host{Name: "gpu-1", URL: &url.URL{Scheme: "http", Host: at}, Token: token}
	gone := Host{Name: "gpu-2", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	addr, _ := listen(t, newServer(t, Options{Token: token, Hosts: []Host{far, gone}}))
	p.url, p.id = "http://"+addr+"/", "gpu-1:"+p.id
	p.Open(p.url+"#token="+token, 1440, 900, false)
	p.Until(`by("runs").children.length === 4 && by("status").textContent.includes("host gpu-2 (127.0.0.1:1)")`)
	p.Errors()
	p.Eval(`document.querySelector("#runs a").click()`, nil) // the newest
	p.Until(`by("run").textContent === "` + p.id + `" && by("live").textContent.includes("word49")`)
	p.Until(`by("events").textContent.includes("word49")`)
	p.look(t, "host", "#run="+p.id)
	p.Eval(`[...document.querySelectorAll("#level button")].find((b) => b.textContent === "VERBOSE").click()`, nil)
	if level := <-p.levels; level != "VERBOSE" {
		t.Errorf("level %q", level)
	}
	pageTokens(p.log, 50, 5)
	p.Until(`by("text").textContent.includes("word54")`)
	p.Until(`by("events").textContent.includes("word54")`)
	cut()
	p.Until(`by("problem").textContent !== ""`)
	p.Until(`by("problem").textContent === ""`)
	pageTokens(p.log, 55, 5)
	p.Until(`by("text").textContent.includes("word59") && by("events").textContent.includes("word59")`)
	p.Errors()
	if err := errors.Join(p.log.Close(), p.run.Seal()); err != nil {
		t.Fatal(err)
	}
	p.Until(`by("state").textContent === "sealed" && !by("report").hidden`)
	p.Eval(`by("report").click()`, nil)
	p.Until(`document.getElementById("p")?.textContent === "read"`)
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("the page reports %s", errors)
	}
}

// accessible checks that a screen reader has a name for everything that takes the focus, and that a narrow page need
// not be moved sideways.
func (p *served) accessible(t *testing.T) {
	t.Helper()
	type value struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
			Properties []struct {
				Name  string
				Value value
			}
		}
	}
	p.Call("Accessibility.getFullAXTree", nil, &tree)
	focusable := 0
	for _, n := range tree.Nodes {
		for _, property := range n.Properties {
			if property.Name == "focusable" && property.Value.Value == true && !n.Ignored {
				if focusable++; n.Name.Value == "" {
					t.Errorf("a %v has no name", n.Role.Value)
				}
			}
		}
	}
	if focusable < 210 { // 201 runs and the controls
		t.Errorf("%d elements take the focus", focusable)
	}
	for _, width := range []int{360, 768, 1440} {
		p.Open(p.url+"#run="+p.id, width, 900, false)
		p.Until(fmt.Sprintf(`innerWidth === %d`, width))
		var wide int
		if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d pixels wide on a screen of %d", wide, width)
		}
	}
}

// look writes a picture of the page, at both widths and in both colours, where LLAMATAP_PICTURES names a folder.
func (p *served) look(t *testing.T, name, fragment string) {
	dir := os.Getenv("LLAMATAP_PICTURES")
	if dir == "" {
		return
	}
	for _, width := range []int{360, 1440} {
		for _, dark := range []bool{false, true} {
			p.Open(p.url+fragment, width, 900, dark)
			p.Until(`by("runs").children.length > 0 && (location.hash === "" || by("times").textContent.includes("%"))`)
			path := filepath.Join(dir, fmt.Sprintf("%s-%d-%v.png", name, width, dark))
			if err := os.WriteFile(path, p.Picture(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPageUnderLoad shows a run of 10,000 events a second: the page keeps up, and what it holds is bounded. It goes
// on for an hour, at a tenth of the rate, and neither the page nor the server grows.
func TestPageUnderLoad(t *testing.T) {
	testenv.Slow(t)
	p := servePage(t, 0)
	p.Open(p.url+"#token="+token, 1440, 900, false)
	p.Until(`by("runs").children.length === 1`)
	p.Eval(`location.hash = "#run=`+p.id+`"`, nil)
	p.Until(`by("text").textContent.includes("word49")`)
	next := 50
	load := func(seconds, eventsPerSecond int) {
		each := eventsPerSecond / perToken / 10
		for i, begun := 0, time.Now(); i < seconds*10; i++ {
			pageTokens(p.log, next, each)
			next += each
			time.Sleep(time.Until(begun.Add(time.Duration(i+1) * 100 * time.Millisecond)))
		}
		p.Until(fmt.Sprintf(`by("text").textContent.includes("word%d")`, next-1))
		p.Until(fmt.Sprintf(`by("events").textContent.includes("exec:%d,")`, next-1))
	}
	load(2, 10_000)
	load(60, 1000)
	page, server := p.heaps()
	load(3540, 1000)
	if pageNow, serverNow := p.heaps(); pageNow > 2*page+10e6 || serverNow > 2*server+10e6 {
		t.Errorf("after a minute the page held %.0f bytes and the server %.0f, after an hour %.0f and %.0f", page,
			server, pageNow, serverNow)
	}
	var lines, nodes int
	p.Eval(`by("events").textContent.split("\n").length`, &lines)
	p.Eval(`document.querySelectorAll("*").length`, &nodes)
	if lines > 200 || nodes > 2000 {
		t.Errorf("%d lines of events, %d elements", lines, nodes)
	}
	if errors := p.Errors(); len(errors) > 0 {
		t.Errorf("the page reports %s", errors)
	}
	p.look(t, "live", "#run="+p.id)
}

// heaps are how many bytes the page's and this process's heaps hold after a collection.
func (p *served) heaps() (page, server float64) {
	p.Call("HeapProfiler.collectGarbage", nil, nil)
	var usage struct{ UsedSize float64 }
	p.Call("Runtime.getHeapUsage", nil, &usage)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage.UsedSize, float64(memory.HeapAlloc)
}
