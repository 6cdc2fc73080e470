//go:build linux

package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"golang.org/x/sys/unix"
)

// The kinds of frames that a consumer gets: a byte, the length of what follows as a little-endian uint32, and that.
// docs/SINK.md says the same.
const (
	frameBegin  = 'B' // a stream begins: its directory's name
	frameStream = 'S' // bytes of activations.stream: whole packets
	frameIndex  = 'X' // bytes of its index: whole records
	frameEnd    = 'E' // nothing follows
)

// feedPatience is how long a consumer may take for a frame when the program has ended.
const feedPatience = 10 * time.Second

// feed is the consumer that --tap-sink names. A nil feed is none. What it is given it writes at once, so that a
// consumer that does not read holds the recording up, and in the end the model or its tensors, by --tap-overflow.
type feed struct {
	to       io.WriteCloser
	where    string
	frame    []byte
	failed   atomic.Pointer[error] // the first error; nothing is written after it
	reported bool
	last     <-chan struct{} // closed when the newest stream has ended
}

// newFeed connects to a consumer: unix:PATH, a socket on which one listens; fd:N, a descriptor of this process; -,
// standard output.
func newFeed(where string) (*feed, error) {
	kind, rest, _ := strings.Cut(where, ":")
	switch kind {
	case "":
		return nil, nil
	case "unix":
		conn, err := net.Dial("unix", rest)
		if err != nil {
			return nil, fmt.Errorf("--tap-sink %s: %w; start what reads there first (python -m llamatap %[1]s does)",
				where,
				cli.Bare(err))
		}
		return &feed{to: conn, where: where}, nil
	case "fd":
		number, err := strconv.Atoi(rest)
		if err != nil || number < 0 {
			return nil, fmt.Errorf("--tap-sink %s: write the number of an open descriptor, such as fd:3", where)
		}
		return descriptorFeed(where, number)
	}
	return descriptorFeed(where, 1)
}

// descriptorFeed writes to a copy of a descriptor, which the program does not inherit. The descriptor must have been
// inherited itself. Those that this process opened, the tap's shared memory among them, close when it executes
// another program.
func descriptorFeed(where string, number int) (*feed, error) {
	of, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0)
	if err == nil && of&unix.FD_CLOEXEC != 0 {
		err = unix.EBADF
	}
	if err != nil {
		return nil, fmt.Errorf("--tap-sink %s: descriptor %d: %w; open it for this command: … --tap-sink fd:3 3>file",
			where, number, err)
	}
	flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("--tap-sink %s: %w", where, err)
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, fmt.Errorf("--tap-sink %s: descriptor %d is open for reading only", where, number)
	}
	own, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("--tap-sink %s: %w", where, err)
	}
	return &feed{to: os.NewFile(uintptr(own), where), where: where}, nil
}

// fed is one stream of a feed: the run's, or a segment's. The next segment is begun before the last one has ended;
// the consumer gets them one behind the other.
type fed struct {
	feed   *feed
	name   string
	before <-chan struct{} // closed when the stream before has ended
	ended  chan struct{}
	begun  bool
	held   []byte // frames of the beginning, while the stream before continues
}

// maxHeld is how much of a stream's beginning is held. What exceeds it waits.
const maxHeld = 1 << 20

// begin makes the next stream.
func (f *feed) begin(name string) *fed {
	if f == nil {
		return nil
	}
	n := &fed{feed: f, name: name, before: f.last, ended: make(chan struct{})}
	f.last = n.ended
	return n
}

// tee is what a stream's writer is given.
func (n *fed) tee() func(index bool, p []byte) {
	if n == nil {
		return nil
	}
	return func(index bool, p []byte) {
		kind := byte(frameStream)
		if index {
			kind = frameIndex
		}
		if !n.begun && !n.mayBegin() && len(n.held)+len(p) <= maxHeld {
			n.held = appendFrame(n.held, kind, p)
			return
		}
		n.start()
		n.feed.write(kind, p)
	}
}

func (n *fed) mayBegin() bool {
	if n.before == nil {
		return true
	}
	select {
	case <-n.before:
		return true
	default:
		return false
	}
}

// start writes what was held, when the stream before has ended.
func (n *fed) start() {
	if n.begun {
		return
	}
	if n.before != nil {
		<-n.before
	}
	n.begun = true
	n.feed.write(frameBegin, []byte(n.name))
	n.feed.send(n.held)
	n.held = nil
}

// end says that nothing of the stream follows. Its writer is closed.
func (n *fed) end() {
	if n != nil {
		n.start()
		close(n.ended)
	}
}

func appendFrame(dst []byte, kind byte, p []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(append(dst, kind), uint32(len(p))), p...)
}

func (f *feed) write(kind byte, p []byte) {
	f.frame = appendFrame(f.frame[:0], kind, p)
	f.send(f.frame)
}

// send writes whole frames, unless the consumer has gone.
func (f *feed) send(frames []byte) {
	if len(frames) == 0 || f.failed.Load() != nil {
		return
	}
	if _, err := f.to.Write(frames); err != nil {
		err = fmt.Errorf("--tap-sink %s: %w", f.where, cli.Bare(err))
		f.failed.Store(&err)
	}
}

// limitWaits gives the consumer a limited time for each of what still comes: the program has ended, and nothing else
// may wait forever.
func (f *feed) limitWaits() {
	if f == nil {
		return
	}
	if to, ok := f.to.(interface{ SetWriteDeadline(time.Time) error }); ok {
		to.SetWriteDeadline(time.Now().Add(feedPatience))
	}
}

// close ends what the consumer reads.
func (f *feed) close() {
	if f == nil {
		return
	}
	f.write(frameEnd, nil)
	f.to.Close()
}

// report prints that the consumer has gone, once. The files are recorded on without it, unless the failure ends
// everything: then the error is returned.
func (f *feed) report(on config.OnFailure) error {
	if f == nil || f.reported || f.failed.Load() == nil {
		return nil
	}
	f.reported = true
	err, reason := *f.failed.Load(), "it reads no more"
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reason = fmt.Sprintf("it read nothing for %v after the program's end", feedPatience)
	}
	err = fmt.Errorf("%w: %s", err, reason)
	if on == config.FailureStop {
		return err
	}
	fmt.Fprintf(present.Err, "llamatap: %v; it is recorded on without it\n", err)
	return nil
}
