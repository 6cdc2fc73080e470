package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Terminal is a pseudo-terminal of 24 rows and 80 columns with a program on it, which a test types to and reads from.
type Terminal struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	before unix.Termios
	gone   chan struct{} // closed when the program has ended
	read   chan struct{} // closed when nothing can write to the terminal any more

	mu     sync.Mutex
	screen bytes.Buffer
	seen   int // what Await has passed
}

// OnTerminal starts cmd as the leader of a session of its own on a new pseudo-terminal. The test's end kills what
// is left of it.
func OnTerminal(t testing.TB, cmd *exec.Cmd) *Terminal {
	t.Helper()
	master, slave, err := openPTY()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	term := &Terminal{t: t, master: master, cmd: cmd, gone: make(chan struct{}), read: make(chan struct{})}
	term.Resize(24, 80)
	term.before = term.modes()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(s) { // as below nohup, and in a script's background: the program would inherit that
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); close(term.gone) }()
	go term.copy()
	t.Cleanup(term.close)
	return term
}

// openPTY makes a pseudo-terminal.
func openPTY() (master, slave *os.File, err error) {
	// so that closing it ends a read
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock a pseudo-terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("name a pseudo-terminal: %w", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

// copy keeps what programs write, until the last one has closed the terminal.
func (term *Terminal) copy() {
	defer close(term.read)
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.screen.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// close kills the program and whatever it left in its session, which loses the terminal.
func (term *Terminal) close() {
	unix.Kill(-term.cmd.Process.Pid, unix.SIGKILL)
	<-term.gone
	term.master.Close()
}

// Type types text.
func (term *Terminal) Type(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatalf("type %q: %v\n%s", text, err, term.Screen())
	}
}

// Await waits until the program has written text, behind what was awaited before.
func (term *Terminal) Await(text string) {
	term.t.Helper()
	term.await(fmt.Sprintf("%q", text), func(unseen string) int {
		at := strings.Index(unseen, text)
		if at < 0 {
			return -1
		}
		return at + len(text)
	})
}

// AwaitBytes waits until the program has written so many bytes, behind what was awaited before.
func (term *Terminal) AwaitBytes(n int) {
	term.t.Helper()
	term.await(fmt.Sprintf("%d bytes", n), func(unseen string) int {
		if len(unseen) < n {
			return -1
		}
		return n
	})
}

// await waits until look says how much of what is unseen it has passed; less than 0 is not yet.
func (term *Terminal) await(what string, look func(unseen string) int) {
	term.t.Helper()
	pass := func() bool {
		term.mu.Lock()
		defer term.mu.Unlock()
		n := look(term.screen.String()[term.seen:])
		term.seen += max(n, 0)
		return n >= 0
	}
	for end := time.Now().Add(Patience()); !pass(); time.Sleep(2 * time.Millisecond) {
		select {
		case <-term.read:
			if !pass() {
				term.t.Fatalf("the program ended without %s\n%s", what, term.Screen())
			}
			return
		default:
		}
		if time.Now().After(end) {
			term.t.Fatalf("the program does not write %s\n%s", what, term.Screen())
		}
	}
}

// Screen is everything that was written so far, with what was typed as far as it was echoed.
func (term *Terminal) Screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// HangUp takes the terminal away, as closing its window does.
func (term *Terminal) HangUp() { term.master.Close() }

// Resize gives the terminal another size.
func (term *Terminal) Resize(rows, columns uint16) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(term.fd(), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		term.t.Fatal(err)
	}
}

// Restored reports whether the terminal is set as it was before the program started.
func (term *Terminal) Restored() bool { return term.modes() == term.before }

func (term *Terminal) modes() unix.Termios {
	term.t.Helper()
	modes, err := unix.IoctlGetTermios(term.fd(), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return *modes
}

// fd is the master's descriptor; a poller would lose it with Fd.
func (term *Terminal) fd() (fd int) {
	conn, err := term.master.SyscallConn()
	if err == nil {
		err = conn.Control(func(f uintptr) { fd = int(f) })
	}
	if err != nil {
		term.t.Fatal(err)
	}
	return fd
}

// PID is the program's process id, and that of its session.
func (term *Terminal) PID() int { return term.cmd.Process.Pid }

// EndsWithin waits so long for the end of the program, and reports whether it came.
func (term *Terminal) EndsWithin(d time.Duration) bool {
	select {
	case <-term.gone:
		return true
	case <-time.After(d):
		return false
	}
}

// Wait waits for the end of the program and of its output, and returns how it ended.
func (term *Terminal) Wait() syscall.WaitStatus {
	term.t.Helper()
	for _, end := range []chan struct{}{term.gone, term.read} {
		select {
		case <-end:
		case <-time.After(Patience()):
			term.t.Fatalf("the program does not end\n%s", term.Screen())
		}
	}
	return term.cmd.ProcessState.Sys().(syscall.WaitStatus)
}
