package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
)

// compareStarts compares how long two command lines take from their start to their first byte of output, in pairs of
// random order. It returns the differences test − base in milliseconds and the ratios test / base. A first pair that
// brings the files into memory is not counted.
func compareStarts(ctx context.Context, base, test []string, pairs int, random *rand.Rand) (
	differences, ratios Interval, err error,
) {
	var more, times []float64
	for i := range pairs + 1 {
		turned := random.IntN(2)
		var ms [2]float64
		for _, side := range []int{turned, 1 - turned} {
			for range 5 { // llama.cpp's log, through which its text goes, may be lost at the program's end
				if ms[side], err = firstByte(ctx, [2][]string{base, test}[side]); !errors.Is(err, errSilent) {
					break
				}
			}
			if err != nil {
				return differences, ratios, err
			}
		}
		if i > 0 {
			more, times = append(more, ms[1]-ms[0]), append(times, ms[1]/ms[0])
		}
	}
	return medianInterval(more), medianInterval(times), nil
}

// errSilent occurs when a command that is timed writes nothing.
var errSilent = errors.New("it wrote nothing to its standard output")

// firstByte is the time in milliseconds until a command writes something to its standard output.
func firstByte(ctx context.Context, line []string) (float64, error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, readErr := out.Read(make([]byte, 1))
	took := time.Since(begin)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", cmd, err)
	}
	if readErr != nil {
		return 0, fmt.Errorf("%s: %w", cmd, errSilent)
	}
	return float64(took.Nanoseconds()) / 1e6, nil
}

// The names of the rows of starts.
const (
	startRow = "(f) drop-in, tapped: start until the first byte of --help"
	firstRow = "(f) run / llama-completion, start until the first token"
)

// startup prints what the drop-in adds to a program's start, and how soon run has its first token. Both sides of
// the latter warm up, and neither fits parameters to the device's memory.
func (t Tap) startup(ctx context.Context, random *rand.Rand) error {
	if t.Completion == "" || !t.wants(startRow) && !t.wants(firstRow) {
		return nil
	}
	self, err := llama.Self()
	if err != nil {
		return err
	}
	pairs := t.Limits.MinPairs
	if pairs >= fewestPairs {
		pairs = max(3*pairs, 20) // they are short, and scatter
	}
	if t.wants(startRow) { // --help computes nothing to record
		tapped := []string{self, "llama-completion", "--tap-layers", "0", "--tap-out", os.TempDir(), "--help"}
		more, _, err := compareStarts(ctx, []string{t.Completion, "--help"}, tapped, pairs, random)
		if err != nil {
			return err
		}
		t.row(startRow, fmt.Sprintf("%+.1f ms [%+.1f, %+.1f] of %d pairs", more.Median, more.Low, more.High, more.Pairs),
			"≤ 30 ms", more.atMost(30))
	}
	if t.wants(firstRow) {
		common := []string{"--ignore-eos", "-m", t.Model.Path, "-p", "func", "-n", "32", "--temp", "0", "-c", "512",
			"-t", strconv.Itoa(t.Model.Threads)}
		completion := append([]string{t.Completion, "-no-cnv", "--no-display-prompt", "-fit", "off"}, common...)
		_, ratio, err := compareStarts(ctx, completion, append([]string{self, "run"}, common...), pairs, random)
		if err != nil {
			return err
		}
		t.row(firstRow, ratio.String(), "≤ 1.00", ratio.atMost(1))
	}
	return nil
}

// atMost judges a gate that the figure must not pass. Fewer than six pairs resolve nothing.
func (i Interval) atMost(gate float64) Verdict {
	return Interval{-i.Median, -i.High, -i.Low, i.Pairs}.AtLeast(-gate)
}
