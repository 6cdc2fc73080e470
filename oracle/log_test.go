//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// TestLogWritten: llama.cpp's programs write through a thread that they do not wait for. A tapped one ends when
// that has written everything, however late its reader is: here the pipe is full, and nothing is read of it before
// the program waits.
func TestLogWritten(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "exec", "--tap-tensors", "l_out*", "--", "llama-completion", "-m", "/nowhere.gguf", "-p", "a")
	cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+t.TempDir())
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	waits := regexp.MustCompile(fmt.Sprintf(`^%d `, unix.SYS_FUTEX))
	looks, begun := 0, false
	testenv.Until(t, "the program waits or has ended", func() bool {
		models := childrenOf(cmd.Process.Pid)
		begun = begun || len(models) > 0
		if len(models) == 0 {
			return begun
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", models[0]))
		if looks++; !waits.Match(text) {
			looks = 0
		}
		return looks == 100
	})
	text, err := io.ReadAll(reader)
	cmd.Wait()
	if err != nil || !bytes.HasPrefix(text, make([]byte, size)) ||
		!strings.Contains(string(text), "unable to create context") {
		t.Errorf("%v, of the program's %d bytes: %q", err, len(text)-size, bytes.TrimLeft(text, "\x00"))
	}
}
