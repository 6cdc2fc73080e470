//go:build linux

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// start serves a folder until the test ends; every command but status is refused by its name.
func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			s.Serve(func(r Request) Answer {
				if r.Command != CommandStatus {
					return Answer{Error: "refused " + r.Command}
				}
				return Answer{OK: true, Status: &Status{Run: dir}}
			})
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { s.Close(); close(stop); <-stopped })
	return s
}

func dial(t *testing.T, dir string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(dir, rundir.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(testenv.Patience()))
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

func answerOf(t *testing.T, r *bufio.Reader) Answer {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func wantStatus(t *testing.T, dir string) {
	t.Helper()
	if a, err := Ask(dir, Request{Command: CommandStatus}); err != nil || !a.OK || a.Status.Run != dir {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestManyClients(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	info, err := os.Stat(filepath.Join(dir, rundir.SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var all sync.WaitGroup
	for range maxClients / 2 {
		all.Go(func() {
			conn, r := dial(t, dir)
			for range 20 {
				conn.Write([]byte(`{"command":"status"}` + "\n" + `{"command":"off"}` + "\n"))
				if a := answerOf(t, r); !a.OK {
					t.Errorf("status: %+v", a)
				}
				if a := answerOf(t, r); a.OK || a.Error != "refused off" {
					t.Errorf("off: %+v", a)
				}
			}
		})
	}
	all.Wait()
}

// TestHostileClients leaves nobody else without an answer.
func TestHostileClients(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	noSocket, _ := dial(t, dir) // asks and is gone
	noSocket.Write([]byte(strings.Repeat(`{"command":"status"}`+"\n", 100)))
	noSocket.Close()
	half, _ := dial(t, dir) // says half a line, for ever
	half.Write([]byte(`{"command":`))
	deaf, _ := dial(t, dir) // asks and never reads
	deaf.SetDeadline(time.Now().Add(100 * time.Millisecond))
	for range 10000 {
		if _, err := deaf.Write([]byte(`{"command":"status"}` + "\n")); err != nil {
			break
		}
	}
	wantStatus(t, dir)
	long, r := dial(t, dir)
	go long.Write([]byte(strings.Repeat("x", 2*maxLine)))
	if a := answerOf(t, r); a.OK || !strings.Contains(a.Error, "longer than 65536 bytes") {
		t.Errorf("a long line: %+v", a)
	}
	nonsense, r := dial(t, dir)
	nonsense.Write([]byte("\x00\xff\n" + `{"command":"status"}` + "\n"))
	if a := answerOf(t, r); a.OK || !strings.Contains(a.Error, "bad request") {
		t.Errorf("nonsense: %+v", a)
	}
	if a := answerOf(t, r); !a.OK {
		t.Errorf("after nonsense: %+v", a)
	}
	wantStatus(t, dir)
}

func TestTooManyClients(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	for range maxClients {
		conn, r := dial(t, dir)
		conn.Write([]byte(`{"command":"status"}` + "\n"))
		answerOf(t, r)
	}
	if _, r := dial(t, dir); !strings.Contains(answerOf(t, r).Error, "16 clients are connected") {
		t.Error("one more was let in")
	}
}

// TestLongPath serves and asks in a folder whose name no socket's address can hold.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	wantStatus(t, dir)
	s.Close()
	if exists(filepath.Join(dir, rundir.SocketName)) {
		t.Error("the socket is still there")
	}
}

func TestSocketsOfOthers(t *testing.T) {
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, rundir.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a socket in use: %v", err)
	}
	stale.Close()
	if _, err := Ask(dir, Request{Command: CommandStatus}); !errors.Is(err, ErrEnded) ||
		!strings.Contains(err.Error(), "collector") {
		t.Errorf("a socket that nobody listens to: %v", err)
	}
	start(t, dir)
	wantStatus(t, dir)
}

func TestClose(t *testing.T) {
	dir := t.TempDir()
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, r := dial(t, dir)
	conn.Write([]byte(`{"command":"status"}` + "\n"))
	time.Sleep(10 * time.Millisecond) // it waits, most likely; either way it is answered
	s.Close()
	s.Close()
	if line, err := r.ReadString('\n'); err == nil && !strings.Contains(line, endedText) {
		t.Errorf("%q", line)
	}
	if _, err := Ask(dir, Request{Command: CommandStatus}); !errors.Is(err, ErrNoRun) {
		t.Errorf("without a run: %v", err)
	}
	text, err := rundir.Manifest{}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o600)
	if _, err := Ask(dir, Request{Command: CommandStatus}); !errors.Is(err, ErrEnded) ||
		!strings.Contains(err.Error(), "is sealed") {
		t.Errorf("of a sealed run: %v", err)
	}
}

// TestNeverRefused connects to sockets as soon as they are there, and until they are gone: nobody gets that a
// run has ended because it has just begun.
func TestNeverRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, rundir.SocketName)
	stop := make(chan struct{})
	var found atomic.Int64
	var turn atomic.Int64 // odd from before a server begins until before it ends
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := turn.Load()
			_, there := os.Stat(path)
			conn, err := net.Dial("unix", path)
			if err == nil {
				found.Add(1)
				conn.Close()
				continue
			}
			if there == nil && began%2 == 1 && turn.Load() == began {
				t.Errorf("a socket that was there before, and that nobody has closed: %v", err)
				<-stop
				return
			}
		}
	})
	for i := 0; i < 2000 || i < 200_000 && found.Load() == 0; i++ { // on a busy machine the client comes late
		turn.Add(1)
		s, err := Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		turn.Add(1)
		s.Close()
		if t.Failed() {
			break
		}
	}
	close(stop)
	looking.Wait()
	if left, _ := os.ReadDir(dir); len(left) != 0 || found.Load() == 0 {
		t.Errorf("%d connections, %d files are left", found.Load(), len(left))
	}
}

func TestFind(t *testing.T) {
	out := filepath.Join(t.TempDir(), "o[u]t")
	one, two := filepath.Join(out, "model", "run_1"), filepath.Join(out, "model", "run_2")
	for _, dir := range []string{one, two} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Find(out); !errors.Is(err, ErrNoRun) {
		t.Errorf("of none: %v", err)
	}
	os.WriteFile(filepath.Join(one, rundir.SocketName), nil, 0o600)
	for _, path := range []string{out, filepath.Dir(one), one} {
		if got, err := Find(path); err != nil || got != one {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	os.WriteFile(filepath.Join(two, rundir.SocketName), nil, 0o600)
	if _, err := Find(out); err == nil || !strings.Contains(err.Error(), one) ||
		!strings.Contains(err.Error(), two) {
		t.Errorf("of two: %v", err)
	}
	for _, path := range []string{filepath.Join(out, "nowhere"), filepath.Join(one, rundir.SocketName)} {
		if _, err := Find(path); err == nil {
			t.Errorf("%s was found", path)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{`{"command":"status"}`,
		`{"command":"tap","tensors":["l_out*"],"tokens":20,"layers":"0-3"}`, `{"command":"level"}`,
		`{"command":"mark","name":"decode","mono_ns":7}`, `{"command":"mark"}`, `{"command":"tap","tensors":[""]}`,
		`{"command":"off"}{}`, `null`, `[]`, `{"command":"tap","tokens":-1}`, `{"Command":"stop","x":1}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parse(line)
		if err != nil {
			if !errors.Is(err, ErrRequest) {
				t.Errorf("%v is no ErrRequest", err)
			}
			return
		}
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	})
}
