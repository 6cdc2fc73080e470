package perfmem

import (
	"errors"
	"os/exec"

	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// Start starts a command and samples it from its first instruction on: it is held at its execve until events are
// open. If they cannot be, it is killed, so that nothing runs unseen. The command must not have been started; wait
// for it as usual.
func Start(cmd *exec.Cmd, o Options) (s *Sampler, err error) {
	err = perfevent.StartHeld(cmd, func(pid int) (err error) {
		o.PID = pid
		s, err = Open(o)
		return err
	})
	if err != nil && s != nil {
		err, s = errors.Join(err, s.Close()), nil
	}
	return s, err
}
