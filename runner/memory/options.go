package memory

import (
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/llamatap/llamatap/memtrace/sample"
)

// Options say what is sampled. Choices, Out, and one of PID and Command are needed.
type Options struct {
	// Choices are the collectors, as those of sample.Options.
	Choices [][]string
	PID     int       // of a process that runs, with all its threads
	Alone   bool      // nothing of what the process starts
	Command *exec.Cmd // not started
	Out     string    // folder in which the run directory is made
	// Duration bounds the recording; 0 = until the process ends. A command runs on after it.
	Duration  time.Duration
	Interval  time.Duration // between two lines of process.jsonl, and two looks for written pages; 0 = one second
	Period    uint64        // of Perf; 0 = what is usual
	RingBytes int           // of each CPU; 0 = as much as may be had
	Tap       string        // the tap's object, which lets a command be watched for written pages
	Version   string        // llamatap's
	Echo      []string      // the command line as the user typed it
	Warn      func(error)   // is called with each warning; nil: none
}

// FolderEnv is the environment variable of a recorded command that names the folder of its run directory.
// Unrecorded is its value where a program that sets markers runs without being recorded: markers are ignored then.
const (
	FolderEnv  = "LLAMATAP_RECORDING"
	Unrecorded = "off"
)

// Errors of beginning to record.
var (
	// ErrStart occurs when a command cannot be started. The error that wraps it says why, and what helps; it is
	// fs.ErrNotExist where there is none, fs.ErrPermission or syscall.ENOEXEC where it cannot be run.
	ErrStart = errors.New("cannot start the program")
	// ErrProcess occurs when a process cannot be recorded at all: it does not run, or has no memory of its own.
	ErrProcess = errors.New("cannot sample the process")
)

// Result is what was recorded.
type Result struct {
	Dir   string // the run directory
	Use   *sample.Use
	Ended <-chan struct{}         // closed when the process has ended; nil of an import
	Exit  func() *os.ProcessState // how a command ended; nil before that
}
