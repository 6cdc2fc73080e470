package track

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// subscriber is a SUB socket of somebody.
type subscriber struct {
	waiting chan []byte
	bytes   atomic.Int64 // of what waits

	mu     sync.Mutex
	topics []string // prefixes
}

// wants reports whether it subscribed to a topic.
func (s *subscriber) wants(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.topics, func(prefix string) bool { return strings.HasPrefix(topic, prefix) })
}

// put lets a message wait for it; false: there is no room.
func (s *subscriber) put(message []byte) bool {
	if s.bytes.Load()+int64(len(message)) > maxWaitBytes {
		return false
	}
	select {
	case s.waiting <- message:
		s.bytes.Add(int64(len(message)))
		return true
	default:
		return false
	}
}

// publish serves a subscriber until it goes, or all is published.
func (p *Publisher) publish(conn net.Conn) {
	defer conn.Close()
	defer p.cut(conn, lingerTime)()
	peer, err := handshake(conn, "PUB", "SUB", "XSUB")
	if err != nil {
		return // it is no subscriber
	}
	s := &subscriber{waiting: make(chan []byte, maxWaiting)}
	p.mu.Lock()
	p.peers[s] = true
	p.mu.Unlock()
	gone := make(chan struct{})
	go func() { // ends with the connection
		defer close(gone)
		for {
			flags, body, err := peer.frame()
			if err != nil {
				return
			}
			s.take(flags, body)
		}
	}()
	p.write(conn, s, gone)
	p.mu.Lock()
	delete(p.peers, s)
	p.mu.Unlock()
	conn.Close()
	<-gone
}

// write writes what waits for a subscriber, until it is gone, or all is published.
func (p *Publisher) write(conn net.Conn, s *subscriber, gone chan struct{}) {
	for {
		var message []byte
		select {
		case message = <-s.waiting:
		case <-gone:
			return
		case <-p.done:
			select {
			case message = <-s.waiting:
			default:
				return
			}
		}
		if _, err := conn.Write(message); err != nil {
			return
		}
		s.bytes.Add(-int64(len(message)))
	}
}

// cut closes a connection when the publisher has been closed for a time. stop ends that.
func (p *Publisher) cut(conn net.Conn, after time.Duration) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-p.done:
		}
		select {
		case <-ended:
		case <-time.After(after):
			conn.Close()
		}
	}()
	return func() { close(ended) }
}

// take takes in a frame: a subscription or its end, as a message or as a command, or a question whether somebody is
// there.
func (s *subscriber) take(flags byte, body []byte) {
	if flags&flagCommand != 0 {
		if answer := pong(body); answer != nil {
			s.put(answer)
		}
		if topic, ok := bytes.CutPrefix(body, []byte("\x09SUBSCRIBE")); ok {
			body = append([]byte{1}, topic...)
		} else if topic, ok := bytes.CutPrefix(body, []byte("\x06CANCEL")); ok {
			body = append([]byte{0}, topic...)
		} else {
			return
		}
	}
	if len(body) == 0 {
		return
	}
	topic := string(body[1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at := slices.Index(s.topics, topic); {
	case body[0] == 1 && len(s.topics) < maxTopics:
		s.topics = append(s.topics, topic)
	case body[0] == 0 && at >= 0:
		s.topics = slices.Delete(s.topics, at, at+1)
	}
}

const maxTopics = 1000 // of a subscriber

// replay answers who asks for past batches: with each from the number on that he names, and an end. A request is an
// empty frame and the number in 8 bytes, an answer an empty frame, the number and the batch; that of the end is -1.
func (p *Publisher) replay(conn net.Conn) {
	defer conn.Close()
	defer p.cut(conn, 0)()
	peer, err := handshake(conn, "ROUTER", "REQ", "DEALER", "ROUTER")
	if err != nil {
		return
	}
	var request [][]byte
	for {
		flags, body, err := peer.frame()
		if err != nil {
			return
		}
		if flags&flagCommand != 0 {
			if answer := pong(body); answer != nil {
				conn.Write(answer)
			}
			continue
		}
		if len(request) < 3 {
			request = append(request, body)
		}
		if flags&flagMore != 0 {
			continue
		}
		if len(request) == 2 && len(request[0]) == 0 && len(request[1]) == 8 {
			if err := p.answer(conn, binary.BigEndian.Uint64(request[1])); err != nil {
				return
			}
		}
		request = request[:0]
	}
}

// answer writes the batches from a number on, and the end.
func (p *Publisher) answer(conn net.Conn, from uint64) error {
	p.mu.Lock()
	kept := slices.Clone(p.kept)
	p.mu.Unlock()
	for _, b := range kept {
		if b.number < from {
			continue
		}
		message := appendMessage(nil, nil, binary.BigEndian.AppendUint64(nil, b.number), b.payload)
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
	_, err := conn.Write(appendMessage(nil, nil, bytes.Repeat([]byte{0xff}, 8), nil))
	return err
}
