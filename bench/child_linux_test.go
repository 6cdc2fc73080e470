package bench

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilled: the program that a killed benchmark was measuring ends.
func TestKilled(t *testing.T) {
	const variable = "LLAMATAP_TEST_CHILD"
	if os.Getenv(variable) != "" {
		cmd := exec.Command("sh", "-c", "echo $$; exec sleep 60")
		cmd.Stdout = os.Stdout
		t.Fatal(runChild(cmd))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	child, wrong := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || wrong != nil {
		t.Fatalf("%q: %v, %v", line, err, wrong)
	}
	for range 500 {
		if syscall.Kill(child, 0) != nil || zombie(child) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	syscall.Kill(child, syscall.SIGKILL)
	t.Errorf("process %d goes on", child)
}

// zombie reports whether a process has ended, and nobody has asked how.
func zombie(pid int) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Contains(string(text), ") Z ")
}
