//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
)

func needLlama(t *testing.T) {
	t.Helper()
	testenv.NeedLlama(t)
	if err := llama.Init(); errors.Is(err, errors.ErrUnsupported) {
		testenv.Beyond(t, "tests built with llama.cpp", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
}

// status waits for a command and returns its exit status; a process that does not end is killed and fails the test.
func status(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	killer := time.AfterFunc(testenv.Patience(), func() { _ = cmd.Process.Kill() })
	defer killer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	}
	t.Fatalf("%q: %v", cmd.Args, err)
	return -1
}

func TestRunWritesTextOnly(t *testing.T) {
	needLlama(t)
	cmd := self("run", "-p", "package ", "-n", "5", "--temp", "0", "-t", "1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if text := stdout.String(); text == "" || strings.Contains(text, "package ") || strings.Contains(text, "llamatap") {
		t.Errorf("stdout is %q", text)
	}
	if text := stdout.String(); !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") {
		t.Errorf("the last line of %q is not ended, or ended twice", text)
	}
	if lines := strings.Split(strings.TrimSpace(stderr.String()), "\n"); len(lines) != 3 ||
		strings.Contains(stderr.String(), "\x1b") {
		t.Errorf("stderr is not the three lines of the summary:\n%s", stderr.String())
	}
}

// TestRunWrongUse checks the exit status, and that stderr gets one line and stdout none.
func TestRunWrongUse(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no prompt", nil, 2, "no prompt: give -p"},
		{"unknown flag", []string{"-p", "a", "--tempp", "1"}, 2, "did you mean --temp?"},
		{"argument", []string{"-p", "a", "b"}, 2, `unexpected argument "b"`},
		{"invalid UTF-8", []string{"-p", "\xff"}, 2, "UTF-8"},
		{"missing model", []string{"-p", "a", "-m", filepath.Join(dir, "none.gguf")}, 1, "no such file"},
		{"folder as model", []string{"-p", "a", "-m", dir}, 1, "is a folder"},
		{"missing prompt file", []string{"-f", filepath.Join(dir, "none")}, 1, "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := self(append([]string{"run"}, test.args...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if got := status(t, cmd); got != test.status {
				t.Errorf("exit status %d, want %d", got, test.status)
			}
			text := stderr.String()
			if !strings.HasPrefix(text, "llamatap: ") || strings.Count(text, "\n") != 1 ||
				!strings.Contains(text, test.want) || stdout.Len() > 0 {
				t.Errorf("stderr %q, stdout %q; want one line with %q", text, stdout.String(), test.want)
			}
		})
	}
}

func TestRunHelp(t *testing.T) {
	out, err := self("run", "--help").Output()
	if err != nil || !bytes.Contains(out, []byte("-m, --model FNAME")) ||
		!bytes.Contains(out, []byte("usage: llamatap run")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRunNeverWaits gives it a stdin on which nothing comes: it must not be read, except with -f -.
func TestRunNeverWaits(t *testing.T) {
	needLlama(t)
	silent, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	defer keep.Close()
	cmd := self("run", "-p", "a", "-n", "2", "-t", "1")
	cmd.Stdin = silent
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := status(t, cmd); got != 0 {
		t.Errorf("exit status %d", got)
	}
	cmd = self("run")
	cmd.Stdin = silent
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := status(t, cmd); got != 2 {
		t.Errorf("no prompt, silent stdin: exit status %d, want 2", got)
	}
}

func TestRunPromptFromStdin(t *testing.T) {
	needLlama(t)
	run := func(stdin string, args ...string) string {
		cmd := self(append([]string{"run", "-n", "12", "--temp", "0", "-t", "1"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	want := run("not read", "-p", "func main() {")
	if got := run("func main() {\n", "-f", "-"); got != want || want == "" {
		t.Errorf("from stdin %q, from -p %q", got, want)
	}
}

// endless starts a run that has no end, and returns when its first text is there.
func endless(t *testing.T) (cmd *exec.Cmd, stdout *bufio.Reader, stderr *bytes.Buffer) {
	t.Helper()
	needLlama(t)
	cmd = self("run", "-p", "func main() {", "-n", "-1", "-c", "30000", "--ignore-eos", "-t", "1")
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout = bufio.NewReader(pipe)
	if _, err := stdout.ReadByte(); err != nil {
		t.Fatalf("no text: %v: %s", err, stderr.String())
	}
	return cmd, stdout, stderr
}

func TestRunSignals(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd, stdout, stderr := endless(t)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, stdout); err != nil {
				t.Error(err)
			}
			if got := status(t, cmd); got != want {
				t.Errorf("exit status %d, want %d", got, want)
			}
			if !strings.Contains(stderr.String(), "interrupted after") ||
				strings.Contains(stderr.String(), "goroutine") {
				t.Errorf("stderr:\n%s", stderr.String())
			}
		})
	}
}

// TestRunSecondSignal stops reading the text, so that the run hangs in a write, which the first Ctrl-C waits for.
// The second does not.
func TestRunSecondSignal(t *testing.T) {
	needLlama(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(make([]byte, size-64)); err != nil { // some tokens fill the rest
		t.Fatal(err)
	}
	cmd := self("run", "-p", "func main() {", "-c", "30000", "--ignore-eos", "-t", "1")
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	ended := make(chan int, 1)
	go func() { ended <- status(t, cmd) }()
	// in write(1, …), where it stays only when the pipe is full
	held := regexp.MustCompile(fmt.Sprintf(`^%d 0x1 `, unix.SYS_WRITE))
	looks := 0
	testenv.Until(t, "the pipe is full", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		looks++
		if !slices.ContainsFunc(threads, func(thread string) bool {
			text, _ := os.ReadFile(thread)
			return held.Match(text)
		}) {
			looks = 0
		}
		return looks == 10
	})
	for _, want := range []string{"waits", "ends"} {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if want == "ends" {
			if got := <-ended; got != 130 {
				t.Fatalf("exit status %d after the second signal", got)
			}
			return
		}
		taken(t, cmd.Process.Pid)
		select {
		case got := <-ended:
			t.Fatalf("exit status %d after one signal", got)
		default:
		}
	}
}

// taken waits until a process has taken every signal that it was sent, and has done what it does about them: no
// signal is pending, and at ten looks in a row all its threads sleep, or it is gone. Two signals of a kind that
// come before one is taken are one signal.
func taken(t *testing.T, pid int) {
	t.Helper()
	pending := regexp.MustCompile(`(?m)^(State:\s+[^SD]|(SigPnd|ShdPnd):.*[1-9a-f])`)
	same := 0
	testenv.Until(t, "the process rests", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		same++
		for _, thread := range threads {
			if text, err := os.ReadFile(thread); err == nil && pending.Match(text) {
				same = 0
			}
		}
		time.Sleep(20 * time.Millisecond) // so that the looks are apart
		return same >= 10
	})
}

// TestRunReaderLeaves closes stdout early, as head does: the run ends of SIGPIPE.
func TestRunReaderLeaves(t *testing.T) {
	needLlama(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	cmd := self("run", "-p", "a", "-n", "500", "--ignore-eos", "-t", "1")
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
		t.Errorf("got %v, want the end by SIGPIPE", err)
	}
}
