//go:build linux

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// The errors of a client. Each is part of a line that states what to do.
var (
	ErrNoRun = errors.New("no run that can be controlled")
	ErrEnded = errors.New("the run has ended")
)

// answerTime is how long a collector may take to answer: it runs when nobody else wants to.
const answerTime = 60 * time.Second

// Ask connects to the run in dir, asks once and returns the answer. An answer that is not OK is not an error.
func Ask(dir string, r Request) (Answer, error) {
	if err := r.Check(); err != nil {
		return Answer{}, err
	}
	path, done, err := address(dir)
	if err != nil {
		return Answer{}, explain(dir, err)
	}
	conn, err := net.Dial("unix", path)
	done()
	if err != nil {
		return Answer{}, explain(dir, err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerTime))
	line, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return Answer{}, explain(dir, err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	var a Answer
	if !lines.Scan() {
		return a, explain(dir, errors.Join(lines.Err(), syscall.ECONNRESET))
	}
	if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
		return a, fmt.Errorf("the answer of %s is damaged: %w", dir, err)
	}
	return a, nil
}

// explain makes an error of the socket one that says how the run is.
func explain(dir string, err error) error {
	sealed, _ := rundir.Sealed(dir)
	lost := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	// a collector that was killed leaves its socket
	noSocket := errors.Is(err, fs.ErrNotExist) || lost && !exists(filepath.Join(dir, rundir.SocketName))
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: not permitted: a run takes commands from the user that started it, and from root", dir)
	case sealed:
		return fmt.Errorf("%s: %w, and is sealed: 'llamatap inspect %s' shows what it holds", dir, ErrEnded, dir)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no answer in %v: the machine is busy, or the collector is stopped; try again", dir,
			answerTime)
	case lost && !noSocket:
		return fmt.Errorf(
			"%s: %w without being sealed: its collector is gone; 'llamatap inspect %s' shows what is left", dir,
			ErrEnded, dir)
	case noSocket && exists(filepath.Join(dir, rundir.StreamName)):
		return fmt.Errorf("%s: %w: %s is not there; the run takes no commands any more", dir, ErrEnded,
			rundir.SocketName)
	case noSocket:
		return fmt.Errorf("%s: %w: give the run directory of a live run, or the folder that holds just one",
			dir, ErrNoRun)
	}
	return fmt.Errorf("%s: %w", dir, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Find returns the run directory that a path means: itself, or the only run below it that takes commands.
func Find(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf(
			"%s: there is no such folder: give a run directory, or the folder that holds just one live run",
			path)
	case errors.Is(err, fs.ErrPermission):
		return "", explain(path, err)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a folder: give a run directory", path)
	}
	for _, name := range []string{rundir.SocketName, rundir.ManifestName, rundir.StreamName} {
		if exists(filepath.Join(path, name)) {
			return path, nil
		}
	}
	var runs []string
	for _, pattern := range []string{"run_*", "*/run_*"} {
		found, _ := filepath.Glob(filepath.Join(escape(path), pattern, rundir.SocketName))
		for _, socket := range found {
			runs = append(runs, filepath.Dir(socket))
		}
	}
	switch len(runs) {
	case 0:
		return "", fmt.Errorf("%s: %w is here or below: runs that have ended take no commands", path, ErrNoRun)
	case 1:
		return runs[0], nil
	}
	return "", fmt.Errorf("%s: %d runs go on below it: give one of %s", path, len(runs), strings.Join(runs, ", "))
}

// escape makes a path one that Glob takes as it is.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
