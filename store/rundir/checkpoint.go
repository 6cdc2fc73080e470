package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CheckpointSuffix is what the name of a checkpoint adds to the stream's.
const CheckpointSuffix = ".ckpt.json"

// checkpointVersion is STRAP-LLM's, and ours.
const checkpointVersion = 1

// Checkpoint is a place that an interrupted run can be resumed from. The keys up to Tokens are STRAP-LLM's. There,
// Tokens is the whole history, written again each time; here it is what came since the checkpoint
// before, from FirstToken on, so that a checkpoint costs what is new.
type Checkpoint struct {
	Version            int                `json:"version"`
	TotalTokens        int64              `json:"total_tokens"`
	LastCheckpointTime float64            `json:"last_checkpoint_time"` // Unix seconds
	Metadata           CheckpointMetadata `json:"metadata"`
	FirstToken         int64              `json:"first_token"`
	Tokens             []TokenRecord      `json:"tokens"`
	Run                CheckpointRun      `json:"run"`
}

// CheckpointMetadata are STRAP-LLM's keys.
type CheckpointMetadata struct {
	StartTime   float64  `json:"start_time"` // Unix seconds
	ResumeCount int      `json:"resume_count"`
	UpdatedAt   float64  `json:"updated_at"`
	Duration    *float64 `json:"capture_duration_seconds,omitempty"` // once the run has ended
}

// CheckpointRun is what a run needs to be the same one again.
type CheckpointRun struct {
	Dir     string `json:"dir"` // absolute; see ReadCheckpoint
	Program string `json:"program"`
	// of llamatap run; absent with --tap-redact text, and of other programs
	Args     []string        `json:"args,omitempty"`
	Folder   string          `json:"working_folder,omitempty"`
	Settings map[string]any  `json:"settings"` // of the tap, by key
	Model    string          `json:"model_fingerprint,omitempty"`
	Llama    string          `json:"llama"`
	Seed     uint32          `json:"seed,omitempty"`    // that was chosen where a random one was asked for
	Changed  bool            `json:"changed,omitempty"` // by commands while it ran: it cannot be repeated
	Synced   json.RawMessage `json:"synced,omitempty"`  // sizes and counts of stream and index that are on the disk
}

// Seconds is a time as STRAP-LLM writes it.
func Seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Write puts the checkpoint at path, in the place of the one before: whoever reads it, at whatever moment the
// machine was cut off, finds one of the two, whole.
func (c *Checkpoint) Write(path string) error {
	c.Version = checkpointVersion
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	err = ReplaceFile(path, func(file *os.File) error {
		_, err := disk.write(file, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// ReadCheckpoint reads a checkpoint file. One that lies next to its stream is of the run directory that it lies in,
// wherever that was when the checkpoint was written: Run.Dir is that directory then. Elsewhere
// (--tap-checkpoint-path) Run.Dir is what the checkpoint says.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	text, err := ReadFile(path, MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			fmt.Errorf(
				"no checkpoint at %s: %w; a run makes some with --tap-checkpoint-every N, and removes them when it "+
					"has ended by itself; verify --repair removes them too", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	var c Checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w: it was not written by llamatap", path, err)
	}
	if c.Version != checkpointVersion || c.Run.Dir == "" {
		return nil, fmt.Errorf("checkpoint %s: version %d, and this program continues from version %d of its own", path,
			c.Version, checkpointVersion)
	}
	stream, named := strings.CutSuffix(path, CheckpointSuffix)
	if _, err := os.Lstat(stream); named && err == nil {
		if c.Run.Dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("read checkpoint: %w", err)
		}
	}
	return &c, nil
}
