//go:build linux

package oracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// aheadS is how far the clock of the second host is ahead, in s: its time namespace says so.
const aheadS = 5000

// TestHosts computes a model on two other hosts and on none. Ledger and tensors are equal; the clocks' offsets are what
// they were set to, within their uncertainty; what was moved is what the links between the hosts counted.
func TestHosts(t *testing.T) {
	testenv.Slow(t)
	hosts := testenv.NeedOtherHosts(t, 2)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	flags := append(startAgents(t, hosts), "-ngl", "99")
	tap := func(args ...string) []string {
		return slices.Concat([]string{"llama-completion"}, flags[:4], args, flags[4:])
	}
	args := []string{"-p", prompt, "-n", "24", "--temp", "0", "-t", "1", "-c", "512", "-ub", "16", "-no-cnv"}
	t.Run("equal", func(t *testing.T) {
		for _, arch := range archs(t, "llama", "qwen3moe") {
			of := append([]string{"--tap-ledger", "-m", synthetic(t, arch, gguf.F16, nil)}, args...)
			of = append(of, everything...)
			alone := llamatap(t, append(append([]string{"llama-completion"}, of...), "-dev", "none",
				"--no-repack")...).good(t)
			far := llamatap(t, tap(append(of, "--tap-host-interval", "100ms")...)...).good(t)
			equalLedgers(t, tracesOf(t, far.dirs[0]), tracesOf(t, alone.dirs[0]))
			a, b := far.capture(t).sealed(t), alone.capture(t)
			wantIDs(t, "tokens", a.ids(), b.ids())
			if n := equalCaptures(t, "on two hosts", a, b); n < 100 {
				t.Errorf("only %d tensors were compared", n)
			}
			checkHosts(t, far.dirs[0], hosts)
		}
	})
	t.Run("wire", func(t *testing.T) {
		var sent, wire [2]int64 // of models of which one is twice as large, and which are computed by the same graphs
		for i, typ := range []gguf.Type{gguf.F16, gguf.F32} {
			model := synthetic(t, "llama", typ, nil)
			before := countLinks(t, hosts)
			of := append([]string{"--tap-host-interval", "24h", "-m", model}, args...)
			dir := llamatap(t, tap(of...)...).good(t).dirs[0]
			moved := movesOf(t, dir)
			for n, h := range hosts {
				now := countLinks(t, hosts)[n]
				m := moved[h.Name]
				sent[i], wire[i] = sent[i]+m.SentBytes, wire[i]+now.sent-before[n].sent
				// Each answer begins with eight bytes of its length. The agent's are the rest.
				got := now.received - before[n].received - 8*m.Received
				t.Logf("%s: received %d B of tensors, by the link %d", h.Name, m.ReceivedBytes, got)
				if got < m.ReceivedBytes || float64(got) > 1.05*float64(m.ReceivedBytes)+50e3 {
					t.Errorf("%s: received %d B of tensors, and by the link %d", h.Name, m.ReceivedBytes, got)
				}
			}
			weights := map[string]int64{}
			eachLine(t, filepath.Join(dir, rundir.MovesName), func(line []byte) {
				var m move
				if json.Unmarshal(line, &m) == nil && m.Op == "set" {
					weights[m.Tensor] += m.Bytes
				}
			})
			wantWeights(t, model, weights)
		}
		t.Logf("sent %d and %d B of tensors, by the links %d and %d", sent[0], sent[1], wire[0], wire[1])
		more, by := sent[1]-sent[0], wire[1]-wire[0]
		if more < 100e3 || math.Abs(float64(by-more)) > 0.01*float64(more)+20e3 {
			t.Errorf("weights of twice the size: %d B more of tensors, and by the links %d", more, by)
		}
	})
}

// startAgents starts an agent and an RPC server on each host, and returns the flags of a run that uses them: four of
// the recording, then those of llama.cpp.
func startAgents(t *testing.T, hosts []testenv.OtherHost) []string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-this-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var agents, servers []string
	for i, h := range hosts {
		endpoint := net.JoinHostPort(h.Addr, "50052")
		args := []string{"netns", "exec", h.Name}
		if i > 0 {
			args = append(args, "unshare", "--time", "--monotonic", strconv.Itoa(aheadS), "--fork", "--kill-child")
		}
		args = append(args, testenv.NeedBinary(t), "host", "agent", "--listen", h.Addr+":7878", "--token", "@"+token,
			"--collectors", "system", "--")
		cmd := exec.Command("ip", append(args, testenv.RPCServer(t, endpoint)...)...)
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		var said strings.Builder
		for in := bufio.NewScanner(stderr); ; said.WriteString(in.Text() + "\n") {
			if !in.Scan() {
				t.Fatalf("the agent ended:\n%s", said.String())
			}
			if strings.Contains(in.Text(), "listening on") {
				go io.Copy(io.Discard, stderr) // its program writes, too
				break
			}
		}
		testenv.Until(t, "the RPC server answers", func() bool {
			conn, err := net.Dial("tcp", endpoint)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		agents, servers = append(agents, h.Name+"="+h.Addr+":7878"), append(servers, endpoint)
	}
	return []string{"--tap-hosts", strings.Join(agents, ","), "--tap-hosts-token", token,
		"--rpc", strings.Join(servers, ",")}
}

// hostsOf are the other hosts of a run.
func hostsOf(t *testing.T, dir string) []resource.OtherHost {
	t.Helper()
	return resource.OtherHosts(metadata(t, dir).Extra["hosts"])
}

// checkHosts compares what a run says of the hosts with what is known of them, and with what it shows.
func checkHosts(t *testing.T, dir string, hosts []testenv.OtherHost) {
	t.Helper()
	meta, shown := metadata(t, dir), llamatap(t, "inspect", dir).stdout
	for i, h := range hostsOf(t, dir) {
		if h.Name != hosts[i].Name || h.Clock == nil || !h.Clock.Steady || len(h.Devices) != 1 {
			t.Fatalf("%+v", h)
		}
		c, want := h.Clock, float64(i)*aheadS*1e9
		if off := math.Abs(c.OffsetNS - want); off > c.OffsetUncertaintyNS || c.OffsetUncertaintyNS > 50e6 {
			t.Errorf("%s: ahead by %.0f ± %.0f ns, and it is %.0f", h.Name, c.OffsetNS, c.OffsetUncertaintyNS, want)
		}
		if c.DriftPPB != nil && math.Abs(*c.DriftPPB) > *c.DriftUncertaintyPPB {
			t.Errorf("%s: drift %.0f ± %.0f ppb of the same clock", h.Name, *c.DriftPPB, *c.DriftUncertaintyPPB)
		}
		t.Logf("%s", h.String())
		if !strings.Contains(shown, h.String()) {
			t.Errorf("inspect does not show %q:\n%s", h.String(), shown)
		}
	}
	kinds := map[string]int{}
	eachLine(t, filepath.Join(dir, rundir.HostsName), func(line []byte) {
		var l struct {
			Host, Collector string
			Mono            int64 `json:"mono_ns"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		kinds[l.Host+" "+l.Collector]++
		if after := l.Mono - meta.Clock.MonoNS; after < 0 || after > int64(10*time.Minute) {
			t.Errorf("a line %v after the run's begin: %.200s", time.Duration(after), line)
		}
	})
	for _, h := range hosts {
		if kinds[h.Name+" clock"] == 0 || kinds[h.Name+" system"] == 0 {
			t.Errorf("lines of %s: %v", h.Name, kinds)
		}
	}
	movesOf(t, dir)
}

func eachLine(t *testing.T, path string, f func(line []byte)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f(line)
	}
}

// move is a line of transfers.jsonl.
type move struct {
	Host, Device, Op, Tensor string
	Bytes                    int64
	Took                     int64 `json:"took_ns"`
	Recording                bool
}

// movesOf adds up what was moved to hosts and back, which must be what the metadata say.
func movesOf(t *testing.T, dir string) map[string]resource.DeviceMoves {
	t.Helper()
	sums := map[string]resource.DeviceMoves{}
	eachLine(t, filepath.Join(dir, rundir.MovesName), func(line []byte) {
		var m move
		if err := json.Unmarshal(line, &m); err != nil || m.Took < 0 || m.Host == "" {
			t.Fatalf("%v: %s", err, line)
		}
		s := sums[m.Host]
		s.Device = m.Device
		if m.Op == "set" {
			s.Sent, s.SentBytes, s.SentNS = s.Sent+1, s.SentBytes+m.Bytes, s.SentNS+m.Took
		} else {
			s.Received, s.ReceivedBytes, s.ReceivedNS = s.Received+1, s.ReceivedBytes+m.Bytes, s.ReceivedNS+m.Took
		}
		if m.Recording {
			s.OwnBytes += m.Bytes
		}
		sums[m.Host] = s
	})
	for _, h := range hostsOf(t, dir) {
		if len(h.Devices) != 1 || h.Devices[0] != sums[h.Name] || sums[h.Name].SentBytes == 0 {
			t.Errorf("%s: metadata say %+v, the lines %+v", h.Name, h.Devices, sums[h.Name])
		}
	}
	return sums
}

// link is what a link carried, without the 66 bytes of each packet that are Ethernet's, IP's and TCP's.
type link struct{ sent, received int64 }

func countLinks(t *testing.T, hosts []testenv.OtherHost) (all []link) {
	t.Helper()
	for _, h := range hosts {
		read := func(name string) (n int64) {
			text, err := os.ReadFile(filepath.Join("/sys/class/net", h.Link, "statistics", name))
			if err == nil {
				_, err = fmt.Sscan(string(text), &n)
			}
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		all = append(all, link{read("tx_bytes") - 66*read("tx_packets"), read("rx_bytes") - 66*read("rx_packets")})
	}
	return all
}
