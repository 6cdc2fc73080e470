//go:build linux

package oracle

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// TestFrontQuit ends a chat by Ctrl-\ and by closing the terminal, which kill llama-cli: the run is sealed, and a terminal that is
// still there is set as before.
func TestFrontQuit(t *testing.T) {
	for name, c := range map[string]struct {
		signal unix.Signal
		quit   func(term *testenv.Terminal)
	}{
		"quit":   {unix.SIGQUIT, func(term *testenv.Terminal) { term.Type("\x1c") }},
		"hangup": {unix.SIGHUP, func(term *testenv.Terminal) { term.HangUp() }},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := front(t, onTap, "llama-cli", chat(t, "4000")...)
			term := testenv.OnTerminal(t, cmd)
			term.Await("\n> ")
			term.Type("package main\n")
			term.Await("\n#")
			c.quit(term)
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
