package oracle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// An endurance is a long time of a llama-server that is started, recorded and ended again and again.
type endurance struct {
	out      string
	random   *rand.Rand
	consumer string // the address of a consumer that accepts and never reads or answers
	answered atomic.Int64
	ends     map[string]int
	most     [2]int64 // resident KiB of collector and server that were added after they were warm
}

// TestEndurance lets llama-server work for SOAK (make endurance: 1h) under every recorder: requests that share
// prefixes and are cancelled, on a disk of 8 MiB/s, in a control group with little memory left, while the clock of the
// machine is set forth and back, subscribers and collectors that never read or answer, and a server that shows all
// runs. Each round ends otherwise: asked to, or with the collector, the server or both killed. What had been flushed
// is there after a repair, byte for byte; memory and descriptors do not grow.
func TestEndurance(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedRoot(t)
	e := &endurance{out: t.TempDir(), random: rand.New(rand.NewPCG(1, 2)), consumer: deaf(t), ends: map[string]int{}}
	address := filepath.Join(t.TempDir(), "s")
	view := exec.Command(testenv.NeedBinary(t), "serve", e.out, "--listen", "unix:"+address, "--no-token")
	if err := view.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { view.Process.Kill(); view.Wait() })
	began, length, warm := time.Now(), soakTime(t, 10*time.Minute), int64(0)
	rounds, some := 0, 0
	for ; time.Since(began) < length; rounds++ {
		e.round(t, rounds)
		if t.Failed() {
			t.Fatalf("in round %d", rounds)
		}
		seen := resident(t, view.Process.Pid)
		if rounds < 4 {
			warm, some = max(warm, seen), max(some, goroutines(t, address))
			continue
		}
		testenv.Until(t, "serve has as many goroutines as when it was warm",
			func() bool { return goroutines(t, address) <= some+4 })
		if files := descriptors(t, view.Process.Pid); seen > warm+24<<10 || files > 64 {
			t.Fatalf("serve grew from %d to %d KiB, with %d descriptors", warm, seen, files)
		}
	}
	t.Logf("%d rounds in %v, ended by %v; %d requests answered; grown when warm: collector %d KiB, server %d KiB at "+
		"most; "+
		"serve: %d KiB and %d goroutines", rounds, time.Since(began).Round(time.Second), e.ends, e.answered.Load(),
		e.most[0], e.most[1], resident(t, view.Process.Pid), goroutines(t, address))
}

// goroutines is how many of them the server of runs at a Unix socket has.
func goroutines(t *testing.T, address string) int {
	t.Helper()
	client := http.Client{Timeout: testenv.Patience(), Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", address) }}}
	answer, err := client.Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_, after, _ := strings.Cut(string(text), "\ngo_goroutines ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return n
}

// deaf listens, accepts, and does nothing more.
func deaf(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}

// round is one life of the server.
func (e *endurance) round(t *testing.T, n int) {
	line := []string{testenv.NeedBinary(t), "exec", "--tap-out", e.out, "--tap-tensors", "l_out-0", "--tap-segment",
		"4M",
		"--tap-max-disk", "1G:rotate", "--tap-kv", "--tap-regions", "--tap-ledger", "windows", "--tap-ledger-window",
		"50ms",
		"--tap-resource-level", "DETAILED", "--tap-samples", "perf:faults", "--tap-host", "all", "--tap-host-interval",
		"500ms",
		"--tap-process-interval", "500ms", "--tap-requests", "--tap-kv-events", "connect:tcp://" + e.consumer,
		"--tap-otlp",
		"http://" + e.consumer, "--tap-memory", "64M", "--", "llama-server", "-np", "4", "-c", "2048", "-t", "1",
		"--no-webui",
		"--context-shift"}
	cmd := exec.Command(line[0], line[1:]...)
	testenv.Throttle(t, cmd, e.out, 8<<20)
	s := serveBy(t, e.out, littleMemory(t, cmd)...)
	takesCommands(t, e.out)
	dir := runDirs(t, e.out)[0]
	collector := s.cmd.Process.Pid
	model := childrenOf(collector)[0]
	ctx, stop := context.WithCancel(t.Context())
	load := e.load(ctx, s.url)
	time.Sleep(time.Duration(5+e.random.IntN(10)) * time.Second)
	warm := [2]int64{resident(t, collector), resident(t, model)}
	files, threads := descriptors(t, collector), ctl(t, dir, "status").Status.Goroutines
	step(t, 3*time.Second)
	time.Sleep(time.Duration(5+e.random.IntN(25)) * time.Second)
	for i, pid := range []int{collector, model} {
		grown := resident(t, pid) - warm[i]
		if e.most[i] = max(e.most[i], grown); grown > 64<<10 { // the pool is touched as it is needed
			t.Errorf("process %d of the round grew by %d KiB", i, grown)
		}
	}
	if now := descriptors(t, collector); now > files+16 {
		t.Errorf("the collector has %d descriptors, and had %d", now, files)
	}
	testenv.Until(t, "the collector has as many goroutines as before, while none is short-lived",
		func() bool { return ctl(t, dir, "status").Status.Goroutines <= threads+4 })
	if m := metadata(t, dir); m.Stopped != nil {
		t.Fatalf("recording stopped: %+v\n%s", m.Stopped, s.stderr.String())
	}
	ctl(t, dir, "flush")
	flushed := prefixes(t, dir)
	time.Sleep(time.Duration(e.random.IntN(3000)) * time.Millisecond)
	how := []string{"request", "collector killed", "server killed", "both killed"}[n%4]
	e.ends[how]++
	if how == "request" {
		stop()
		load.Wait()
		ctl(t, dir, "off")
		poolEmpties(t, dir)
	}
	switch how {
	case "collector killed":
		unix.Kill(collector, unix.SIGKILL)
	case "server killed":
		unix.Kill(model, unix.SIGKILL)
	case "both killed":
		unix.Kill(collector, unix.SIGKILL)
		unix.Kill(model, unix.SIGKILL)
	default:
		unix.Kill(collector, unix.SIGTERM)
	}
	if how == "collector killed" { // the server goes on
		answered := e.answered.Load()
		testenv.Until(t, "the server answers without its collector",
			func() bool { return e.answered.Load() > answered })
		unix.Kill(model, unix.SIGKILL)
	}
	<-s.exited
	stop()
	load.Wait()
	e.check(t, dir, how, flushed)
}

// littleMemory returns a command line in a control group of memory in which the server has little left.
func littleMemory(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	group, err := os.MkdirTemp(root, "llamatap-")
	if err == nil {
		t.Cleanup(func() { os.Remove(group) })
		err = os.WriteFile(filepath.Join(group, file), []byte("640M"), 0)
	}
	if err != nil {
		testenv.Beyond(t, "a control group of memory", err.Error())
	}
	return append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group, cmd.Path}, cmd.Args[1:]...)
}

// step sets the clock forth, and back again a second later.
func step(t *testing.T, by time.Duration) {
	t.Helper()
	for _, d := range []time.Duration{by, -by} {
		ts := unix.NsecToTimespec(time.Now().Add(d).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
			testenv.Beyond(t, "a clock that may be set", err.Error())
		}
		time.Sleep(time.Second)
	}
}

// load asks four requests at a time, half of which share a beginning and some of which are cancelled.
func (e *endurance) load(ctx context.Context, url string) *sync.WaitGroup {
	all := new(sync.WaitGroup)
	for client := range 4 {
		random := rand.New(rand.NewPCG(uint64(client), e.random.Uint64()))
		all.Go(func() {
			for ctx.Err() == nil {
				prompt := strings.Repeat("x", random.IntN(200)) + " func main() {"
				if random.IntN(2) == 0 {
					prompt = long + prompt
				}
				body, _ := json.Marshal(map[string]any{"prompt": prompt, "n_predict": 1 + random.IntN(96),
					"ignore_eos": true})
				limit := time.Minute
				if random.IntN(8) == 0 {
					limit = time.Duration(random.IntN(200)) * time.Millisecond
				}
				asked, cancel := context.WithTimeout(ctx, limit)
				request, _ := http.NewRequestWithContext(asked, http.MethodPost, url+"/completion",
					bytes.NewReader(body))
				if answer, err := http.DefaultClient.Do(request); err == nil {
					if _, err := io.Copy(io.Discard, answer.Body); err == nil {
						e.answered.Add(1)
					}
					answer.Body.Close()
				}
				cancel()
			}
		})
	}
	return all
}

// A prefix is how a file began.
type prefix struct {
	bytes int64
	sum   [sha256.Size]byte
}

// isEvents reports whether a file is a part of the log of events.
func isEvents(name string) bool {
	return strings.HasPrefix(name, "resource.") && strings.HasSuffix(name, ".jsonl")
}

// prefixes are the streams and logs of a run as they are now.
func prefixes(t *testing.T, dir string) map[string]prefix {
	t.Helper()
	all := map[string]prefix{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name := filepath.Base(path); err == nil && (name == "activations.stream" || isEvents(name)) {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil // rotated away meanwhile
			}
			if isEvents(name) { // its last line may be half there
				data = data[:bytes.LastIndexByte(data, '\n')+1]
			}
			all[path] = prefix{int64(len(data)), sha256.Sum256(data)}
		}
		return nil
	}); err != nil || len(all) == 0 {
		t.Fatalf("%s has nothing: %v", dir, err)
	}
	return all
}

// check repairs a run and demands that what had been flushed is there, or was given back by rotation, and that
// nothing is left over.
func (e *endurance) check(t *testing.T, dir, how string, flushed map[string]prefix) {
	t.Helper()
	o := llamatap(t, "verify", "--repair", dir)
	v := verifyJSON(t, dir)
	if !v.Sealed || slices.Contains(v.kinds(), "damage") || slices.Contains(v.kinds(), "unsealed") ||
		how == "request" && !v.OK {
		t.Errorf("%s: status %d, %+v\n%s", how, o.status, v, o.stderr)
	}
	m := metadata(t, dir)
	if m.Account != nil && len(m.Account.Violations) > 0 || m.Account == nil && len(m.Repaired) == 0 {
		t.Errorf("%s: account %+v", how, m.Account)
	}
	for path, want := range flushed {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && m.Rotated != nil {
			continue
		}
		if err != nil || int64(len(data)) < want.bytes || sha256.Sum256(data[:want.bytes]) != want.sum {
			t.Errorf("%s: %s had %d bytes when it was flushed, and has %d: %v", how, path, want.bytes, len(data), err)
		}
	}
	for _, pattern := range []string{"*.part*", "control.sock"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("%s: left over: %v", how, left)
		}
	}
	os.RemoveAll(dir)
}
