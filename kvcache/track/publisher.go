package track

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/llamatap/llamatap/kvcache"
)

// The bounds of a publisher.
const (
	maxPublished = 10_000   // past batches that can be asked for
	maxKeptBytes = 64 << 20 // of them
	maxWaiting   = 10_000   // batches that wait for a subscriber
	maxWaitBytes = 16 << 20 // of them
	maxPeers     = 64
	lingerTime   = time.Second // that subscribers have at the end
)

// PublishOptions say what is published where.
type PublishOptions struct {
	// Endpoint is where subscribers connect, tcp://ADDRESS:PORT (* is every address of the machine), or, after
	// "connect:", a subscriber to connect to. Replay is where past batches can be asked for; "": nowhere.
	Endpoint, Replay string
	Topic            string
	Block            int    // tokens of a block
	Seed             string // what vLLM has as PYTHONHASHSEED
	Format           string // of events: map or array
}

// A Publisher follows blocks and publishes what changes. Its methods but Use are for one goroutine, and never wait for
// a peer: a subscriber that does not keep up loses batches, and sees a gap in their numbers.
type Publisher struct {
	o       PublishOptions
	blocks  *blocks
	closers []func() error
	work    sync.WaitGroup
	done    chan struct{}
	closed  bool

	mu      sync.Mutex
	next    uint64 // number of the next batch
	kept    []batch
	bytes   int // of kept
	held    int // blocks, after the newest batch
	peers   map[*subscriber]bool
	dropped int64
}

// batch is one that was published.
type batch struct {
	number  uint64
	payload []byte
}

// Use is what was published.
type Use struct {
	Endpoint string `json:"endpoint"`
	Batches  uint64 `json:"batches"`
	Blocks   int    `json:"blocks"` // that are held now
	// Dropped counts batches that a subscriber did not get because it did not keep up, over all subscribers.
	Dropped int64 `json:"dropped"`
}

// Open makes the sockets.
func Open(o PublishOptions) (*Publisher, error) {
	p := &Publisher{o: o, blocks: newBlocks(o.Block, o.Seed), done: make(chan struct{}), peers: map[*subscriber]bool{}}
	address, connect, err := kvcache.ParseEndpoint(o.Endpoint)
	switch {
	case err != nil:
	case connect:
		p.work.Go(func() { p.dial(address) })
	default:
		err = p.listen(&p.o.Endpoint, address, p.publish)
	}
	if err == nil && o.Replay != "" {
		if address, connect, err = kvcache.ParseEndpoint(o.Replay); err == nil && connect {
			err = fmt.Errorf("%q: past batches are asked for at an address of this machine: leave connect: out",
				o.Replay)
		}
		if err == nil {
			err = p.listen(&p.o.Replay, address, p.replay)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// listen serves peers at an address, one goroutine each.
func (p *Publisher) listen(name *string, address string, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("publish KV events at %s: %w: choose another port, or stop who has it", *name, err)
	}
	*name = "tcp://" + l.Addr().String()
	p.closers = append(p.closers, l.Close)
	places := make(chan struct{}, maxPeers)
	p.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			select {
			case places <- struct{}{}:
				p.work.Go(func() { serve(conn); <-places })
			default:
				conn.Close()
			}
		}
	})
	return nil
}

// dial connects to a subscriber that listens, again and again.
func (p *Publisher) dial(address string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { <-p.done; stop() }()
	for {
		if conn, err := (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, "tcp", address); err == nil {
			p.publish(conn)
		}
		select {
		case <-p.done:
			return
		case <-time.After(time.Second):
		}
	}
}

// Change takes in the tokens of a sequence, of which those before from are what they were. It keeps none of them.
func (p *Publisher) Change(ctx uint32, seq int32, from int, tokens []int32) {
	if events := p.blocks.change(sequence{ctx, seq}, from, tokens); len(events) > 0 {
		p.send(float64(time.Now().UnixMicro())/1e6, events)
	}
}

// send numbers a batch, keeps it, and gives it to who subscribed.
func (p *Publisher) send(seconds float64, events []event) {
	b := batch{payload: encode(nil, seconds, events, p.o.Block, p.o.Format == "map")}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.number, p.held = p.next, len(p.blocks.refs)
	p.next++
	p.kept, p.bytes = append(p.kept, b), p.bytes+len(b.payload)
	for len(p.kept) > maxPublished || p.bytes > maxKeptBytes {
		p.bytes -= len(p.kept[0].payload)
		p.kept = p.kept[1:]
	}
	var message []byte
	for s := range p.peers {
		if !s.wants(p.o.Topic) {
			continue
		}
		if message == nil {
			message = appendMessage(nil, []byte(p.o.Topic), binary.BigEndian.AppendUint64(nil, b.number), b.payload)
		}
		if !s.put(message) {
			p.dropped++
		}
	}
}

// Use is what was published until now.
func (p *Publisher) Use() Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Use{Endpoint: p.o.Endpoint, Batches: p.next, Blocks: p.held, Dropped: p.dropped}
}

// Close gives subscribers a second to take what waits for them, and closes the sockets. It may be called twice.
func (p *Publisher) Close() (err error) {
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.done)
	for _, end := range p.closers {
		err = errors.Join(err, end())
	}
	p.work.Wait()
	return err
}
