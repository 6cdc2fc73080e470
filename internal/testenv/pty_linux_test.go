package testenv

import (
	"os/exec"
	"testing"
)

func TestTerminal(t *testing.T) {
	term := OnTerminal(t, exec.Command("sh", "-c",
		`stty size; stty -echo; printf 'name? '; read name; stty size; echo "<$name>"; exit 3`))
	term.Await("24 80")
	term.Await("name? ")
	if term.Restored() {
		t.Error("a terminal without echo counts as set as before")
	}
	term.Resize(40, 100)
	term.Type("anna\n")
	term.Await("40 100")
	if status := term.Wait(); status.ExitStatus() != 3 {
		t.Errorf("status %v", status)
	}
	if want := "24 80\r\nname? 40 100\r\n<anna>\r\n"; term.Screen() != want {
		t.Errorf("screen %q, want %q", term.Screen(), want)
	}
}

func TestTerminalInterrupt(t *testing.T) {
	term := OnTerminal(t, exec.Command("sh", "-c",
		"trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done"))
	term.Await("ready")
	term.Type("\x03")
	if status := term.Wait(); status.ExitStatus() != 5 || !term.Restored() {
		t.Errorf("status %v\n%q", status, term.Screen())
	}
}
