package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// logVersion is the version of a result file.
const logVersion = 1

// Log is a result file: one JSON line with the plan and the environment, then one per visit. It can be read again,
// and resumed.
type Log struct{ file *os.File }

// logLine is a line of it: the first has Version, Plan and Environment, the others Visit.
type logLine struct {
	Version     int          `json:"llamatap_bench,omitempty"`
	Plan        *Plan        `json:"plan,omitempty"`
	Environment *Environment `json:"environment,omitempty"`
	Visit       *Visit       `json:"visit,omitempty"`
}

// CreateLog makes a result file; one that is there already is an error.
func CreateLog(path string, plan *Plan, environment *Environment) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("result file %s exists: resume from it with --resume, or name another", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the result file: %w", err)
	}
	l := &Log{file}
	if err := l.write(logLine{Version: logVersion, Plan: plan, Environment: environment}); err != nil {
		file.Close()
		return nil, err
	}
	return l, nil
}

// ResumeLog opens a result file of the same plan for appending, and returns what it holds. A line that a
// crash truncated is removed.
func ResumeLog(path string, plan *Plan) (*Log, *Environment, []Visit, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open the result file: %w", err)
	}
	head, visits, whole, err := readLog(file)
	switch {
	case err != nil:
	case !samePlan(head.Plan, plan):
		err = errors.New("its tests, settings, rounds or seed are others: give the same script and flags, or begin " +
			"a new file with --results")
	default:
		if err = file.Truncate(whole); err == nil {
			_, err = file.Seek(whole, io.SeekStart)
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, nil, fmt.Errorf("result file %s: %w", path, err)
	}
	return &Log{file}, head.Environment, visits, nil
}

// maxLog bounds what is read of a result file in bytes: what is behind it is not a line of ours.
const maxLog = 128 << 20

// readLog reads a result file as far as its lines are whole.
func readLog(in io.Reader) (head logLine, visits []Visit, whole int64, err error) {
	data, err := io.ReadAll(io.LimitReader(in, maxLog))
	if err != nil {
		return head, nil, 0, err
	}
	for line := range bytes.Lines(data) {
		var l logLine
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &l) != nil {
			break
		}
		if whole == 0 {
			head = l
		} else if l.Visit != nil {
			visits = append(visits, *l.Visit)
		}
		whole += int64(len(line))
	}
	if head.Version != logVersion || head.Plan == nil {
		return head, nil, 0, fmt.Errorf("no result file of version %d: give one that --results wrote", logVersion)
	}
	for _, v := range visits {
		if v.Item < 0 || v.Item >= len(head.Plan.Items) || len(v.Repetitions) == 0 {
			return head, nil, 0, errors.New("it holds a visit of a test that its plan lacks")
		}
	}
	return head, visits, whole, nil
}

// samePlan compares what would be run.
func samePlan(a, b *Plan) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

func (l *Log) add(v *Visit) error { return l.write(logLine{Visit: v}) }

// write writes a line with one call, and syncs it: a visit may have taken minutes.
func (l *Log) write(line logLine) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = l.file.Write(append(data, '\n'))
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the result file: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
