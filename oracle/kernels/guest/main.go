//go:build linux

// Command guest is the first process of the virtual machine of the tests: it loads the kernel's modules, mounts
// the host's files, read-only, a disk of its own and what a kernel shows of itself, runs a command, reports its
// status and switches the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Order is what the guest is to do; package vm writes the same.
type Order struct {
	Modules []string // files in /modules, each after those that it needs
	Dir     string   // where the command runs
	Args    []string
	Env     []string
}

// Done begins the line with the status; package vm reads it.
const Done = "llamatap-guest: status"

func main() {
	status := 125
	if err := run(&status); err != nil {
		fmt.Println("llamatap-guest:", err)
	}
	fmt.Println(Done, status)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // of a machine of one process there is nobody to report to
	select {}
}

func run(status *int) error {
	text, err := os.ReadFile("/order.json")
	if err != nil {
		return err
	}
	var o Order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	for _, m := range o.Modules {
		if err := load(filepath.Join("/modules", m)); err != nil {
			return err
		}
	}
	if err := mount(); err != nil {
		return err
	}
	if err := unix.Chroot("/host"); err != nil {
		return err
	}
	if err := errors.Join(groups(), loopback()); err != nil {
		return err
	}
	cmd := exec.Command(o.Args[0], o.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = o.Dir, o.Env, os.Stdout, os.Stdout
	err = cmd.Run()
	if cmd.ProcessState != nil {
		*status = cmd.ProcessState.ExitCode()
		return nil
	}
	return err
}

// load loads a module of the kernel.
func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// mount mounts what the command needs below /host.
func mount() error {
	if err := os.MkdirAll("/host", 0o755); err != nil {
		return err
	}
	for _, m := range []struct{ from, to, kind, options string }{
		{"host", "/host", "9p", "trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro"},
		{"proc", "/host/proc", "proc", ""}, {"sys", "/host/sys", "sysfs", ""}, {"dev", "/host/dev", "devtmpfs", ""},
		{"run", "/host/run", "tmpfs", ""},
		{"cgroup", "/host/sys/fs/cgroup", "cgroup2", ""}, {"bpf", "/host/sys/fs/bpf", "bpf", ""},
		{"trace", "/host/sys/kernel/tracing", "tracefs", ""}, {"/host/dev/vda", "/host/mnt", "ext4", ""},
	} {
		flags := uintptr(0)
		if m.kind == "9p" {
			flags = unix.MS_RDONLY
		}
		if err := unix.Mount(m.from, m.to, m.kind, flags, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for _, dir := range []string{"/host/dev/pts", "/host/dev/shm"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("shm", "/host/dev/shm", "tmpfs", 0, ""); err != nil {
		return err
	}
	return os.Symlink("/proc/self/fd", "/host/dev/fd")
}

// groups lets groups below the first one be limited.
func groups() error {
	return os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +io +cpu +pids"), 0)
}

// loopback lets programs of this machine speak to each other.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
