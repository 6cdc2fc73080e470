package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// ErrMissing means that this machine, or this user's rights, cannot run BPF programs. The error that wraps it names
// what is missing.
var ErrMissing = errors.New("BPF programs cannot run here")

// Remedies in errors and in the doctor's output.
const (
	remedyRights = "run as root, or give the program the rights once: " +
		"setcap cap_bpf,cap_perfmon,cap_dac_read_search,cap_sys_ptrace+ep $(readlink -f $(command -v llamatap))"
	remedyBTF     = "a kernel with CONFIG_DEBUG_INFO_BTF=y"
	remedyTracefs = "mount -t tracefs nodev /sys/kernel/tracing"
)

// explain adds the cause and the remedy to an error of the kernel.
func explain(what string, err error) error {
	var remedy string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, fs.ErrPermission):
		remedy = remedyRights
	case strings.Contains(err.Error(), "nor tracefs"):
		remedy = remedyTracefs
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL) && strings.Contains(err.Error(), "bpf"):
		remedy = "a kernel with CONFIG_BPF_SYSCALL=y, 5.8 or newer, outside of a sandbox that forbids bpf(2)"
	case errors.Is(err, syscall.ENOMEM):
		remedy = "more locked memory for this user: ulimit -l unlimited"
	default:
		return fmt.Errorf("%w: %s: %w", ErrMissing, what, err)
	}
	return fmt.Errorf("%w: %s: %w; needs: %s", ErrMissing, what, err, remedy)
}
