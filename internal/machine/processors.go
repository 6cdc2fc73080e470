package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Ticks are the times of processors as /proc/stat counts them, in its units.
type Ticks struct{ Busy, All int64 }

// Since is what was used between two readings, as a share; false where no time went by.
func (t Ticks) Since(before Ticks) (share float64, ok bool) {
	if t.All <= before.All {
		return 0, false
	}
	return float64(t.Busy-before.Busy) / float64(t.All-before.All), true
}

// ReadTicks reads /proc/stat: of all processors together, and of each. Time that the hypervisor gave to others
// counts as busy: it was not to be had.
func ReadTicks(root fs.FS) (all Ticks, each map[int]Ticks, err error) {
	text, err := fs.ReadFile(root, "proc/stat")
	if err != nil {
		return all, nil, fmt.Errorf("how busy the machine is: %w; mount it: mount -t proc proc /proc", err)
	}
	each = map[int]Ticks{}
	found := false
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 5 || !strings.HasPrefix(words[0], "cpu") {
			continue
		}
		var t Ticks
		for i, word := range words[1:min(len(words), 9)] { // guests, behind them, are in user time already
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return all, nil, fmt.Errorf("how busy the machine is: /proc/stat has %.40q where a number belongs",
					word)
			}
			t.All += n
			if i != 3 && i != 4 { // idle, and idle while a disk works
				t.Busy += n
			}
		}
		if words[0] == "cpu" {
			all, found = t, true
		} else if n, err := strconv.Atoi(words[0][len("cpu"):]); err == nil {
			each[n] = t
		}
	}
	if !found {
		return all, nil, errors.New("how busy the machine is: /proc/stat has no line for all processors")
	}
	return all, each, nil
}
