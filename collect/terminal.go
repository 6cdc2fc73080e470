//go:build linux

package collect

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal remembers how a terminal was set before a program changed it.
type terminal struct {
	fd    int
	modes *unix.Termios // nil: it is not a terminal
}

// lookAtTerminal notes the settings of a program's standard input, where that is a terminal.
func lookAtTerminal(stdin io.Reader) terminal {
	file, ok := stdin.(*os.File)
	if !ok {
		return terminal{}
	}
	fd := int(file.Fd())
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return terminal{}
	}
	return terminal{fd, modes}
}

// restore undoes what a program that was killed could not undo: llama.cpp's take echo and line editing away from
// the terminal. In the background it does nothing, for the terminal is somebody else's then.
func (t terminal) restore() {
	if t.modes == nil {
		return
	}
	if group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		unix.IoctlSetTermios(t.fd, unix.TCSETS, t.modes)
	}
}
