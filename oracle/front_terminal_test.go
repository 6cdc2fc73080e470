//go:build linux

package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// endlessly is -n of an answer that ends when it is interrupted, however late.
const endlessly = "-1"

// chat is llama-cli in its interactive form. It takes no more of -c than the context that the model was trained
// with, 512 tokens: an answer would end there, or be too long for the next prompt, so the model says of itself that
// it was trained with more.
func chat(t *testing.T, n string) []string {
	t.Helper()
	return []string{"-m", testenv.Model(t), "--override-kv", "llama.context_length=int:32768", "-c", "32768",
		"--context-shift",
		"-n", n, "--temp", "0", "-t", "1", "--ignore-eos"}
}

// onTerminal gives a program a pseudo-terminal, and an object that makes it print the terminal's size.
func onTerminal(t *testing.T, cmd *exec.Cmd) *testenv.Terminal {
	t.Helper()
	cmd.Env = append(cmd.Environ(), "LD_PRELOAD="+testenv.TellSize(t))
	return testenv.OnTerminal(t, cmd)
}

// both runs a script on the original on a terminal and on ours, and demands the same screen and end, and the
// terminal as it was.
func both(t *testing.T, args []string, script func(term *testenv.Terminal)) {
	t.Helper()
	run := func(cmd *exec.Cmd) (screen string, status unix.WaitStatus) {
		term := onTerminal(t, cmd)
		script(term)
		status = unix.WaitStatus(term.Wait())
		if !term.Restored() {
			t.Errorf("%q leaves the terminal changed", cmd.Args)
		}
		return mask(strings.ReplaceAll(withoutSummary(term.Screen()), "\r\n", "\n")), status
	}
	want, wantStatus := run(exec.Command(testenv.NeedTool(t, "llama-cli").Path, args...))
	got, status := run(front(t, onTap, "llama-cli", args...))
	sameText(t, "screen", got, want)
	if status != wantStatus {
		t.Errorf("status %#x, the original's %#x", status, wantStatus)
	}
}

// TestFrontTyping types two prompts, the second from the history with its last word changed, and ends with Ctrl-D.
func TestFrontTyping(t *testing.T) {
	both(t, chat(t, "5"), func(term *testenv.Terminal) {
		term.Await("\n> ")
		term.Type("package mäix\x7fn")
		term.Await("n")
		term.Type("\n")
		term.Await("t/s ]")
		term.Await("\n> ")
		term.Resize(40, 100)
		term.Await("[40x100]")
		term.Type("\x1b[A")
		term.Await("package mäin")
		term.Type("\x1b[D\x1b[D\x1b[D\x1b[D")
		term.Type("b\n")
		term.Await("t/s ]")
		term.Await("\n> ")
		term.Type("\x04")
		term.Await("Exiting...")
	})
}

// TestFrontInterrupt interrupts two answers, which ends neither, waits longer than a hanging program is given, has
// a third answer and interrupts the prompt, which ends it.
func TestFrontInterrupt(t *testing.T) {
	cmd := front(t, onTap, "llama-cli", chat(t, endlessly)...)
	term := onTerminal(t, cmd)
	for range 2 {
		term.Await("\n> ")
		term.Type("package main\n")
		term.Await("\x1b[0m")
		term.AwaitBytes(30) // of the answer
		term.Type("\x03")
		term.Await("t/s ]")
	}
	term.Await("\n> ")
	time.Sleep(3 * time.Second)
	term.Type("\x03")
	if status := term.Wait(); status.ExitStatus() != 0 || !term.Restored() {
		t.Errorf("status %#x, terminal restored %v\n%s", status, term.Restored(), term.Screen())
	}
	sealedBelow(t, cmd)
}

// sealedBelow opens the one run directory that a front end made, which must be sealed.
func sealedBelow(t *testing.T, cmd *exec.Cmd) *capture {
	t.Helper()
	for _, entry := range cmd.Env {
		if out, found := strings.CutPrefix(entry, "LLAMATAP_OUT="); found {
			return outcome{args: cmd.Args, dirs: runDirs(t, out)}.capture(t).sealed(t)
		}
	}
	t.Fatal("no folder to record into")
	return nil
}

// TestFrontStop stops a chat with Ctrl-Z under a shell, which must see the job stop, and continues it with fg: the
// answer goes on until it is interrupted.
func TestFrontStop(t *testing.T) {
	cmd := front(t, onTap, "llama-cli", chat(t, endlessly)...)
	quoted := make([]string, len(cmd.Args))
	for i, arg := range cmd.Args {
		quoted[i] = "'" + arg + "'"
	}
	shell := exec.Command("sh", "-i")
	shell.Env = append(cmd.Env, "PS1=$? READY ", "ENV=", "LD_PRELOAD=")
	term := testenv.OnTerminal(t, shell)
	term.Await("READY ")
	line := strings.Join(quoted, " ")
	term.Type(line + "\n")
	term.Await("\n> ")
	term.Type("package main\n")
	term.Await("\n#")
	term.Type("\x1a")
	term.Await("Stopped")
	term.Await("READY ")
	pids := inGroupOf(t, "llama-cli", term.PID())
	for _, pid := range pids {
		if text, err := os.ReadFile(filepath.Join("/proc", pid, "status")); err != nil ||
			!strings.Contains(string(text), "State:\tT") {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if len(pids) != 2 {
		t.Errorf("processes %v of the job, want collector and model", pids)
	}
	term.Type("fg\n")
	term.AwaitBytes(len(line) + 200) // more than the line, which the shell prints
	term.Type("\x03")
	term.Await("t/s ]")
	term.Await("\n> ")
	term.Type("\x04")
	term.Await("Exiting...")
	term.Await("0 READY ")
	term.Type("exit\n")
	term.Wait()
	sealedBelow(t, cmd)
}

// inGroupOf lists the processes of a session that have a word in their command line.
func inGroupOf(t *testing.T, word string, session int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		pid := filepath.Base(filepath.Dir(file))
		n, _ := strconv.Atoi(pid)
		if sid, err2 := unix.Getsid(n); err == nil && err2 == nil && sid == session && n != session &&
			strings.Contains(string(line), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestFrontHangs: a program that hangs in its handler of Ctrl-C is killed after the second one, what it left is
// sealed, and the terminal is as it was.
func TestFrontHangs(t *testing.T) {
	testenv.Slow(t)
	cmd := front(t, onTap, "llama-cli", chat(t, endlessly)...)
	cmd.Env = append(cmd.Env, "LD_PRELOAD="+testenv.HangOnInterrupt(t))
	term := testenv.OnTerminal(t, cmd)
	term.Await("\n> ")
	term.Type("package main\n")
	term.Await("\n#")
	limit := time.Now().Add(testenv.Patience())
	// A busy machine may make one signal of two. Typing another one discards what a terminal has not yet given out: so
	// none is typed when the program is to be killed, 2 s after the second.
	wait := time.Second
	for ended := false; !ended; ended, wait = term.EndsWithin(wait), 5*time.Second {
		if time.Now().After(limit) {
			t.Fatalf("the program is not killed\n%s", term.Screen())
		}
		term.Type("\x03")
	}
	status := term.Wait()
	term.Await("killed 2 s after the second one") // what was written last may not have been read yet
	if status.ExitStatus() != 130 || !term.Restored() {
		t.Errorf("status %#x, terminal restored %v\n%s", status, term.Restored(), term.Screen())
	}
	if c := sealedBelow(t, cmd); c.meta.Exit == nil || c.meta.Exit.Status != 130 || c.meta.Exit.Reason == "" {
		t.Errorf("metadata says %+v", c.meta.Exit)
	}
}
