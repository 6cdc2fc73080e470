//go:build linux

package oracle

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// TestFrontQuit ends a chat by Ctrl-\ and by closing the terminal, which kill llama-cli: the run is sealed, and a
// terminal that is still there is set as before.
func TestFrontQuit(t *testing.T) {
	for name, c := range map[string]struct {
		signal unix.Signal
		quit   func(t *testing.T, term *testenv.Terminal)
	}{
		"quit":   {unix.SIGQUIT, func(_ *testing.T, term *testenv.Terminal) { term.Type("\x1c") }},
		"hangup": {unix.SIGHUP, hangUp},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := front(t, onTap, "llama-cli", chat(t, endlessly)...)
			term := testenv.OnTerminal(t, cmd)
			term.Await("\n> ")
			term.Type("package main\n")
			term.Await("\n#")
			c.quit(t, term)
			if status := term.Wait(); !status.Signaled() || status.Signal() != c.signal {
				t.Errorf("status %#x\n%s", status, term.Screen())
			}
			if name == "quit" && (!term.Restored() || !strings.Contains(term.Screen(), "llamatap  tokens")) {
				t.Errorf("terminal restored %v\n%s", term.Restored(), term.Screen())
			}
			sealedBelow(t, cmd)
		})
	}
}

// hangUp takes the terminal away. The kernel signals the leader of its session, which is llamatap, and that the
// model; a model that finds out by itself that it has no terminal any more, because llamatap gets no processor,
// ends without being killed. So it is held until it is signalled.
func hangUp(t *testing.T, term *testenv.Terminal) {
	t.Helper()
	model := childrenOf(term.PID())
	if len(model) != 1 {
		t.Fatalf("llamatap has the children %v, want 1", model)
	}
	unix.Kill(model[0], unix.SIGSTOP)
	defer unix.Kill(model[0], unix.SIGCONT)
	term.HangUp()
	pending := regexp.MustCompile(`(?m)^ShdPnd:.*[13579bdf]$`) // HUP is the lowest bit
	testenv.Until(t, "the model is sent HUP", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", model[0]))
		return err != nil || pending.Match(text)
	})
}
