package config

import (
	"fmt"
	"strings"
	"time"
)

// minDisk is the least that --tap-max-disk accepts: what a run needs to be sealed is kept free within it.
const minDisk = 4 * MiB

// minSegment is the smallest size that --tap-segment accepts.
const minSegment = 64 * KiB

// Segment says when a new segment begins. The zero value is never: the run is one.
type Segment struct {
	Bytes Bytes         // at this size; 0: not by size
	Every time.Duration // after this time; 0: not by time
}

// String writes the segment as a user would.
func (s Segment) String() string {
	switch {
	case s.Every > 0 && s.Every%time.Hour == 0:
		return fmt.Sprintf("%dh", s.Every/time.Hour)
	case s.Every > 0 && s.Every%time.Minute == 0:
		return fmt.Sprintf("%dm", s.Every/time.Minute)
	case s.Every > 0:
		return fmt.Sprintf("%gs", s.Every.Seconds())
	case s.Bytes > 0:
		return s.Bytes.String()
	}
	return ""
}

// DiskAction is what happens at a bound of the disk.
type DiskAction string

// What happens there.
const (
	DiskStop   DiskAction = "stop"   // recording ends and is sealed; the program continues
	DiskRotate DiskAction = "rotate" // the oldest sealed segment, or part of a table or of events, is given back
)

// MaxDisk bounds what a run takes on the disk. The zero value means no bound.
type MaxDisk struct {
	Bytes  Bytes
	Action DiskAction
}

// String writes the bound as a user would.
func (m MaxDisk) String() string {
	if m.Bytes == 0 {
		return ""
	}
	return m.Bytes.String() + ":" + string(m.Action)
}

// MinFree is the space that a run leaves free on its file system.
type MinFree struct {
	Auto  bool // 1 GiB or 2 % of the file system, whichever is less
	Bytes Bytes
}

// Of returns the floor for a file system of that many bytes.
func (m MinFree) Of(total uint64) uint64 {
	if m.Auto {
		return min(uint64(GiB), total/50)
	}
	return uint64(m.Bytes)
}

// String writes the floor as a user would.
func (m MinFree) String() string {
	if m.Auto {
		return "auto"
	}
	return m.Bytes.String()
}

func diskOptions() []option {
	return []option{
		{name: "segment", form: "SIZE|TIME", role: roleRun,
			help: "write the run as segments, each sealed and whole by itself, of this size (1G, 512M) or time (1h, " +
				"30m, 90s)",
			field: written(func(t *Tap) *Segment { return &t.Segment }, parseSegment, Segment.String)},
		{name: "max-disk", form: "SIZE[:stop|rotate]", role: roleRun,
			help: "most that the run may take on the disk; there, recording stops and the program continues (stop, " +
				"the default), or the oldest sealed segment, or part of a table or of events, goes (rotate)",
			field: written(func(t *Tap) *MaxDisk { return &t.MaxDisk }, parseMaxDisk, MaxDisk.String)},
		{name: "min-free", form: "SIZE", role: roleRun, byDef: "auto",
			help: "space to leave free on the file system, with the action of --tap-max-disk below it; auto is 1G " +
				"or 2 % of it, whichever is less, 0 is none",
			field: written(func(t *Tap) *MinFree { return &t.MinFree }, parseMinFree, MinFree.String)},
		{name: "preallocate", form: "SIZE", role: roleRun, byDef: "0",
			help: "room that the disk keeps for tensors ahead of what is written, such as 64M; 0 is none. It keeps " +
				"the file in few pieces where others " +
				"write to the disk too, and costs a little speed",
			field: written(func(t *Tap) *Bytes { return &t.Preallocate }, ParseBytes, Bytes.String)},
		{name: "redact", form: "none|text", role: roleRun, byDef: "none",
			help:  "text keeps the text of prompts and tokens out of every file; token ids stay",
			field: either(func(t *Tap) *bool { return &t.RedactText }, "kind of redaction", "none", "text")},
	}
}

// parseSegment distinguishes a time from a size by its last letter: s, m and h are times, so that 30m is half an hour
// and 30M a size.
func parseSegment(s string) (Segment, error) {
	if strings.HasSuffix(s, "s") || strings.HasSuffix(s, "m") || strings.HasSuffix(s, "h") {
		every, err := time.ParseDuration(s)
		if err != nil || every < time.Second {
			return Segment{}, fmt.Errorf(
				"segment %q: write a time of at least a second such as 90s, 30m or 1h, or a size such as 512M or 1G", s)
		}
		return Segment{Every: every}, nil
	}
	size, err := ParseBytes(s)
	if err == nil && size < minSegment {
		err = fmt.Errorf("segment %q is too small: give at least %v", s, minSegment)
	}
	return Segment{Bytes: size}, err
}

func parseMaxDisk(s string) (MaxDisk, error) {
	size, action, given := strings.Cut(s, ":")
	if !given {
		action = string(DiskStop)
	}
	action, err := oneOf("action at the bound", action, []string{string(DiskStop), string(DiskRotate)})
	if err != nil {
		return MaxDisk{}, err
	}
	bytes, err := ParseBytes(size)
	if err == nil && bytes < minDisk {
		err = fmt.Errorf("disk %q is too little for a run: give at least %v", size, minDisk)
	}
	return MaxDisk{Bytes: bytes, Action: DiskAction(action)}, err
}

func parseMinFree(s string) (MinFree, error) {
	if s == "auto" {
		return MinFree{Auto: true}, nil
	}
	bytes, err := ParseBytes(s)
	return MinFree{Bytes: bytes}, err
}
