package config

import (
	"fmt"
	"strings"
	"time"
)

// Sync says when what was recorded is put on the disk, so that it outlives the machine's end and not only the
// program's.
type Sync struct {
	Policy string        // none, interval or token
	Every  time.Duration // with interval; else 0
}

// The bounds of --tap-sync interval:TIME: below, a disk does little else; above, it does not differ from none.
const (
	minSyncInterval = 10 * time.Millisecond
	maxSyncInterval = time.Hour
)

// String writes the policy as a user would.
func (s Sync) String() string {
	if s.Policy == "interval" {
		return fmt.Sprintf("interval:%v", s.Every)
	}
	return s.Policy
}

func syncOptions() []option {
	return []option{
		{name: "sync", form: "none|interval[:TIME]|token", role: roleRun, byDef: "interval:1s",
			help: "when what was recorded is synced to the disk, which counts when the machine is cut off: at an " +
				"interval (interval:200ms), " +
				"after each token, or by the system and at the end (none); the model waits for none of them",
			field: written(func(t *Tap) *Sync { return &t.Sync }, parseSync, Sync.String)},
	}
}

func parseSync(s string) (sync Sync, err error) {
	policy, interval, given := strings.Cut(s, ":")
	sync.Policy, err = oneOf("sync policy", policy, []string{"none", "interval", "token"})
	switch {
	case err != nil:
		return sync, err
	case sync.Policy != "interval" && given:
		return sync, fmt.Errorf("sync %q: only interval takes a time; write %s", s, sync.Policy)
	case sync.Policy != "interval":
		return sync, nil
	case !given:
		sync.Every = time.Second
		return sync, nil
	}
	every, err := time.ParseDuration(interval)
	if err != nil || every < minSyncInterval || every > maxSyncInterval {
		return sync, fmt.Errorf("sync %q: write a time from %v to %v, such as interval:200ms", s, minSyncInterval,
			maxSyncInterval)
	}
	sync.Every = every.Round(time.Millisecond)
	return sync, nil
}
