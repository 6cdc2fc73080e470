package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// OtherHost is a network namespace, as another host. What runs in it ends with the test.
type OtherHost struct {
	Name string // of the namespace
	Addr string // its address
	Link string // this host's end of the link to it
}

// NeedOtherHosts makes n hosts that this one reaches, each by a link of its own, until the test ends. It needs root.
func NeedOtherHosts(t testing.TB, n int) (otherHosts []OtherHost) {
	t.Helper()
	NeedRoot(t)
	ip := func(args string) ([]byte, error) { return exec.Command("ip", strings.Fields(args)...).CombinedOutput() }
	for i := range n {
		id := os.Getpid()%4096*4 + i // a network of four addresses
		h := OtherHost{Name: fmt.Sprintf("llamatap%d", id), Link: fmt.Sprintf("lt%d", id)}
		near := fmt.Sprintf("198.18.%d.%d", id>>6, id&63<<2|1) // of RFC 2544, for tests
		h.Addr = fmt.Sprintf("198.18.%d.%d", id>>6, id&63<<2|2)
		if out, err := ip("netns add " + h.Name); err != nil {
			netns.miss(t, fmt.Sprintf("%v: %s", err, out))
		}
		t.Cleanup(func() {
			pids, _ := ip("netns pids " + h.Name) // of programs whose parents were killed, too
			for _, word := range strings.Fields(string(pids)) {
				if pid, err := strconv.Atoi(word); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			_, _ = ip("link del " + h.Link)
			_, _ = ip("netns del " + h.Name)
		})
		for _, args := range []string{
			"link add " + h.Link + " type veth peer name host netns " + h.Name,
			"addr add " + near + "/30 dev " + h.Link, "link set " + h.Link + " up",
			"-n " + h.Name + " addr add " + h.Addr + "/30 dev host",
			"-n " + h.Name + " link set host up", "-n " + h.Name + " link set lo up",
		} {
			if out, err := ip(args); err != nil {
				t.Fatalf("ip: %v: %s", err, out)
			}
		}
		otherHosts = append(otherHosts, h)
	}
	return otherHosts
}
