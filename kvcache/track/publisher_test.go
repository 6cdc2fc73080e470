package track

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, o PublishOptions) *Publisher {
	t.Helper()
	p, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// connect makes a peer of a socket.
func connect(t *testing.T, endpoint, as, wanted string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p, err := handshake(conn, as, wanted)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// message reads one of several frames.
func (p *peer) message(t *testing.T) (frames [][]byte) {
	t.Helper()
	for {
		flags := make([]byte, 1)
		size := make([]byte, 8)
		if _, err := io.ReadFull(p.in, flags); err != nil {
			t.Fatal(err)
		}
		short := size[7:]
		if flags[0]&flagLong != 0 {
			short = size
		}
		if _, err := io.ReadFull(p.in, short); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint64(size))
		if _, err := io.ReadFull(p.in, body); err != nil {
			t.Fatal(err)
		}
		if frames = append(frames, body); flags[0]&flagMore == 0 {
			return frames
		}
	}
}

// TestSlowSubscriber: one that reads nothing loses batches, which are counted. When it reads, their numbers have a gap,
// and the ones it lacks can be asked for. Nobody waited for it.
func TestSlowSubscriber(t *testing.T) {
	const free = "tcp://127.0.0.1:0"
	p := open(t, PublishOptions{Endpoint: free, Replay: free, Topic: "kv", Block: 1, Format: "map"})
	events, replay := p.o.Endpoint, p.o.Replay
	slow := connect(t, events, "SUB", "PUB")
	slow.Write(appendFrame(nil, 0, []byte("\x01k")))
	other := connect(t, events, "SUB", "PUB")
	other.Write(appendFrame(nil, flagCommand, []byte("\x09SUBSCRIBEno")))
	waitFor(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for s := range p.peers {
			s.mu.Lock()
			n += len(s.topics)
			s.mu.Unlock()
		}
		return n == 2
	})
	tokens, sent := make([]int32, 20_000), uint64(0)
	for ; p.Use().Dropped < 10; sent++ { // a batch stores, another clears, in turn
		if sent%2 == 0 {
			p.Change(0, 0, 0, tokens)
		} else {
			p.Change(0, 0, 0, nil)
		}
		if sent > 10_000 {
			t.Fatal("nothing is dropped")
		}
	}
	if use := p.Use(); use.Batches != sent {
		t.Errorf("%+v, want %d batches", use, sent)
	}
	next := uint64(0)
	for {
		m := slow.message(t)
		if len(m) != 3 || string(m[0]) != "kv" || len(m[1]) != 8 {
			t.Fatalf("%.50q", m)
		}
		n := binary.BigEndian.Uint64(m[1])
		if n == next {
			if next++; next == sent {
				t.Fatal("there is no gap")
			}
			if next > sent-20 { // what waits was read, so there is room again
				p.Change(0, 0, 0, tokens[:1+next%100])
				sent = p.Use().Batches
			}
			continue
		}
		if n < next {
			t.Fatalf("batch %d after %d", n, next)
		}
		break
	}
	asks := connect(t, replay, "DEALER", "ROUTER")
	asks.Write(appendMessage(nil, nil, binary.BigEndian.AppendUint64(nil, next)))
	m := asks.message(t)
	if len(m) != 3 || len(m[0]) != 0 || binary.BigEndian.Uint64(m[1]) != next || len(m[2]) == 0 {
		t.Fatalf("asked for batch %d, got %.50q", next, m)
	}
	for !bytes.Equal(m[1], bytes.Repeat([]byte{0xff}, 8)) {
		m = asks.message(t)
	}
	if len(m[2]) != 0 {
		t.Errorf("the end has %q", m[2])
	}
	other.Write(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x01abc")))
	if flags, body, err := other.frame(); err != nil || flags != flagCommand || string(body) != "\x04PONGabc" {
		t.Errorf("an answer to PING: %d %q %v", flags, body, err)
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("waited in vain")
		}
	}
}

// TestConnect: a publisher finds a subscriber that listens, and gives it what it has when it is closed.
func TestConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := open(t, PublishOptions{Endpoint: "connect:tcp://" + l.Addr().String(), Block: 1, Format: "array", Seed: "0"})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := handshake(conn, "SUB", "PUB")
	if err != nil {
		t.Fatal(err)
	}
	sub.Write(appendFrame(nil, 0, []byte{1}))
	waitFor(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for s := range p.peers {
			return s.wants("")
		}
		return false
	})
	p.Change(0, 0, 0, []int32{5})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if m := sub.message(t); len(m) != 3 || !bytes.Contains(m[2], []byte("\x98\xabBlockStored\x91\xcf")) {
		t.Errorf("%q", m)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzHandshake: whatever a peer sends, it is refused or read, with a bound.
func FuzzHandshake(f *testing.F) {
	greeting := make([]byte, 64)
	copy(greeting, []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0})
	copy(greeting[12:], "NULL")
	f.Add(append(greeting, appendFrame(nil, flagCommand, []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"))...))
	f.Add(append(greeting, flagLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := handshake(&bytesConn{Reader: bytes.NewReader(data)}, "PUB", "SUB")
		for s := (&subscriber{waiting: make(chan []byte, 1)}); err == nil; {
			var flags byte
			var body []byte
			if flags, body, err = p.frame(); err == nil {
				s.take(flags, body)
			}
		}
	})
}

// bytesConn is a connection that reads bytes.
type bytesConn struct {
	net.Conn
	*bytes.Reader
}

func (c *bytesConn) Read(b []byte) (int, error)    { return c.Reader.Read(b) }
func (c *bytesConn) Write(b []byte) (int, error)   { return len(b), nil }
func (c *bytesConn) SetDeadline(t time.Time) error { return nil }
