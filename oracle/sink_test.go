//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// consumed is what a consumer got.
type consumed struct {
	names         []string // of the streams that began
	stream, index []byte
	ended         bool
}

// consume takes frames until their end; of a consumer that is to go early, a few.
func consume(t *testing.T, from io.Reader, most int) (c consumed) {
	for range most {
		head := make([]byte, 5)
		if _, err := io.ReadFull(from, head); err != nil {
			return c
		}
		data := make([]byte, binary.LittleEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(from, data); err != nil {
			t.Errorf("a frame was cut off: %v", err)
			return c
		}
		switch head[0] {
		case 'B':
			c.names = append(c.names, string(data))
		case 'S':
			c.stream = append(c.stream, data...)
		case 'X':
			c.index = append(c.index, data...)
		case 'E':
			c.ended = true
		default:
			t.Errorf("a frame of kind %q", head[0])
		}
	}
	return c
}

// listen is a consumer on a socket, which reads once ready is closed, or at once where it is nil; result waits for it.
func listen(t *testing.T, most int, ready <-chan struct{}) (address string, result func() consumed) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan consumed, 1)
	go func() {
		defer listener.Close()
		conn, err := listener.Accept()
		if err != nil {
			close(done)
			return
		}
		defer conn.Close()
		if ready != nil {
			<-ready
		}
		done <- consume(t, conn, most)
	}()
	t.Cleanup(func() { listener.Close() })
	return "unix:" + path, func() consumed { return <-done }
}

const allFrames = 1 << 40

var sinkRun = slices.Concat([]string{"run", "--tap-memory", "16M"}, everything, []string{"-p", prompt, "-n", "150",
	"--temp", "0", "--ignore-eos", "-t", "1"})

// A consumer gets both files, byte for byte, also one that begins to read when the model waits for it; nothing is lost
// meanwhile.
func TestSink(t *testing.T) {
	for name, late := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			var ready chan struct{}
			if late {
				ready = make(chan struct{})
			}
			address, result := listen(t, allFrames, ready)
			g := begin(t, append(sinkRun, "--tap-sink", address)...)
			if late {
				g.untilFull(t, "S")
				close(ready)
			}
			if status := g.wait(t); status != 0 {
				t.Fatalf("status %#x\n%s", status, g.stderr.String())
			}
			c := g.left(t)
			got := result()
			if !got.ended || len(got.names) != 1 || got.names[0] != filepath.Base(c.dir) {
				t.Errorf("streams %q, ended %v", got.names, got.ended)
			}
			if !bytes.Equal(got.stream, content(t, filepath.Join(c.dir, "activations.stream"))) ||
				!bytes.Equal(got.index, content(t, filepath.Join(c.dir, "activations.stream.idx"))) {
				t.Error("the consumer got other bytes than the files")
			}
			if late && *c.meta.Tap.WaitNS == 0 {
				t.Error("the model did not wait for the consumer: nothing was tested")
			}
		})
	}
}

// Each segment is a stream of its own.
func TestSinkOfSegments(t *testing.T) {
	testenv.Slow(t)
	address, result := listen(t, allFrames, nil)
	o := llamatap(t, append(sinkRun, "--tap-sink", address, "--tap-segment", "4M")...).good(t)
	got := result()
	segments, err := filepath.Glob(filepath.Join(o.dirs[0], "seg-*"))
	if err != nil || len(segments) < 2 || len(got.names) < len(segments) {
		t.Fatalf("%d segments, %q began, %v", len(segments), got.names, err)
	}
	var streams []byte
	for _, s := range segments {
		streams = append(streams, content(t, filepath.Join(s, "activations.stream"))...)
	}
	if !bytes.Equal(got.stream, streams) {
		t.Errorf("%d bytes of streams came, and there are %d", len(got.stream), len(streams))
	}
}

// Without its consumer a run goes on, and its files are whole; with --tap-on-failure stop it ends.
func TestSinkGone(t *testing.T) {
	address, result := listen(t, 5, nil)
	o := llamatap(t, append(sinkRun, "--tap-sink", address)...).good(t)
	result()
	if !strings.Contains(o.stderr, "it is recorded on without it") {
		t.Errorf("the consumer is not mentioned\n%s", o.stderr)
	}
	llamatap(t, "verify", o.dirs[0]).good(t)

	address, result = listen(t, 5, nil)
	o = llamatap(t, append(sinkRun, "-n", "100000", "-c", "512", "--context-shift", "--tap-sink", address,
		"--tap-on-failure", "stop")...)
	result()
	if o.status != 1 || !strings.Contains(o.stderr, "it reads no more") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
}

// A descriptor is a consumer too, and standard output where nothing else goes there.
func TestSinkDescriptor(t *testing.T) {
	out := t.TempDir()
	file, err := os.Create(filepath.Join(t.TempDir(), "frames"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := command(t, append(sinkRun, "--tap-sink", "fd:3")...)
	cmd.ExtraFiles = []*os.File{file}
	c := finish(t, cmd, out).good(t).capture(t)
	want := content(t, filepath.Join(c.dir, "activations.stream"))
	if got := consume(t, bytes.NewReader(content(t, file.Name())), allFrames); !got.ended ||
		!bytes.Equal(got.stream, want) {
		t.Errorf("fd:3: %d bytes of the stream, want %d", len(got.stream), len(want))
	}
	prompts := textFile(t, `{"id": "a", "prompt": "func main() {", "n_predict": 8}`+"\n")
	o := llamatap(t, "run", "--tap-tensors", "l_out", "--tap-sink", "-", "--prompts", prompts,
		"--results", filepath.Join(out, "results")).good(t)
	if got := consume(t, strings.NewReader(o.stdout), allFrames); !got.ended || len(got.stream) == 0 {
		t.Errorf("standard output: %d bytes of the stream", len(got.stream))
	}
}

func TestSinkRefusals(t *testing.T) {
	for sink, want := range map[string]string{
		"unix:" + filepath.Join(t.TempDir(), "nobody"): "start what reads there first",
		"fd:77": "open it for this command", "-": "standard output is the program's own",
		"tcp:80": "write unix:PATH, fd:N or -", "fd:1": "are the program's",
	} {
		o := llamatap(t, append(sinkRun, "--tap-sink="+sink)...)
		if o.status == 0 || !strings.Contains(o.stderr, want) || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
			t.Errorf("%s: status %d\n%s", sink, o.status, o.stderr)
		}
	}
}

// TestSinkExample: the Python package reads from a socket what it reads from the file.
func TestSinkExample(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	live := pythonPackage(t, "-m", "llamatap", "unix:"+socket)
	var stdout, stderr bytes.Buffer
	live.Stdout, live.Stderr = &stdout, &stderr
	if err := live.Start(); err != nil {
		t.Fatal(err)
	}
	// bound, and accepting
	listens := regexp.MustCompile(`(?m)^\S+ \S+ \S+ 00010000 .* ` + regexp.QuoteMeta(socket) + `$`)
	testenv.Until(t, "Python listens", func() bool {
		sockets, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		return listens.Match(sockets)
	})
	c := llamatap(t, append(sinkRun, "-n", "30", "--tap-sink", "unix:"+socket)...).good(t).capture(t)
	if err := live.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	file := pythonPackage(t, "-m", "llamatap", filepath.Join(c.dir, "activations.stream"))
	want, err := file.Output()
	if err != nil || len(want) == 0 || !bytes.Equal(stdout.Bytes(), want) {
		t.Errorf("%d bytes are reported of the socket, %d of the file, %v", stdout.Len(), len(want), err)
	}
}
