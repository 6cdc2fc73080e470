package track

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// The part of ZMTP 3.0 (rfc.zeromq.org/spec/23) that PUB and ROUTER sockets without security need.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxFrame      = 1 << 16 // that a peer may send, in bytes
	handshakeTime = 10 * time.Second
)

// peer is a connection whose handshake is done.
type peer struct {
	net.Conn
	in *bufio.Reader
}

// handshake greets a peer as a socket of a type, and refuses peers whose type is not among those wanted.
func handshake(conn net.Conn, as string, wanted ...string) (*peer, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	greeting := make([]byte, 64)
	copy(greeting, []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0})
	copy(greeting[12:], "NULL")
	ready := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(as)))
	ready = append(ready, as...)
	if _, err := conn.Write(appendFrame(greeting, flagCommand, ready)); err != nil {
		return nil, err
	}
	p := &peer{Conn: conn, in: bufio.NewReader(conn)}
	theirs := make([]byte, len(greeting))
	if _, err := io.ReadFull(p.in, theirs); err != nil {
		return nil, err
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return nil, errors.New("the peer does not speak ZMTP 3 without security")
	}
	flags, body, err := p.frame()
	if err != nil {
		return nil, err
	}
	properties, ok := strings.CutPrefix(string(body), "\x05READY")
	if flags&flagCommand == 0 || !ok {
		return nil, errors.New("the peer sends no READY")
	}
	kind, err := property(properties, "socket-type")
	if err != nil {
		return nil, err
	}
	for _, one := range wanted {
		if kind == one {
			return p, conn.SetDeadline(time.Time{})
		}
	}
	return nil, fmt.Errorf("the peer is a %.20q socket, not one of %v", kind, wanted)
}

// property finds a property of READY, by its name in lower case.
func property(list, name string) (string, error) {
	for list != "" {
		n := int(list[0])
		if len(list) < 1+n+4 {
			break
		}
		size := binary.BigEndian.Uint32([]byte(list[1+n:]))
		value := list[1+n+4:]
		if uint64(len(value)) < uint64(size) {
			break
		}
		if strings.ToLower(list[1:1+n]) == name {
			return value[:size], nil
		}
		list = value[size:]
	}
	return "", fmt.Errorf("the peer does not say its %s", name)
}

// frame reads a frame of at most maxFrame bytes.
func (p *peer) frame() (flags byte, body []byte, err error) {
	if flags, err = p.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	size := make([]byte, 8)
	short := size[7:]
	if flags&flagLong != 0 {
		short = size
	}
	if _, err = io.ReadFull(p.in, short); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(size)
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes: at most %d are read", n, maxFrame)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(p.in, body)
	return flags, body, err
}

// appendFrame appends a frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// appendMessage appends a message of several frames.
func appendMessage(b []byte, frames ...[]byte) []byte {
	for i, frame := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = appendFrame(b, flags, frame)
	}
	return b
}

// pong is the answer to a command, if it is a PING; nil: it is none.
func pong(command []byte) []byte {
	if len(command) < 7 || string(command[:5]) != "\x04PING" {
		return nil
	}
	return appendFrame(nil, flagCommand, append([]byte("\x04PONG"), command[7:]...))
}
