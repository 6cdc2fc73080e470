//go:build linux && llama

package oracle

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// rcloneMain is a program of rclone with the parts that serve a folder as S3.
const rcloneMain = `package main

import (
	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve"
	_ "github.com/rclone/rclone/cmd/serve/s3"
)

func main() { cmd.Main() }
`

const rcloneModule = "github.com/rclone/rclone@v1.76.0"

// buildRclone builds rclone from its Go module, below build/compiled. What was built before is used again.
func buildRclone(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(testenv.Root(t), "build", "compiled")
	sum := sha256.Sum256([]byte(rcloneModule + rcloneMain))
	built := filepath.Join(folder, fmt.Sprintf("rclone-%.8x", sum))
	if _, err := os.Stat(built); err == nil {
		return built
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(folder, "new-") // other test processes may build the same
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"main.go": rcloneMain, "go.mod": "module served\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"get", rcloneModule}, {"mod", "tidy"}, {"build", "-o", "rclone", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	if err := os.Rename(filepath.Join(dir, "rclone"), built); err != nil {
		t.Fatal(err)
	}
	return built
}

// s3Secret is the key of the server, which nothing may print or record.
const s3Secret = "a secret of this test"

// s3Server is rclone that serves a folder as S3, with one bucket "runs".
type s3Server struct {
	program, address string
	bucket           string // folder of the bucket
	cache            string // of the user who reads it
	cmd              *exec.Cmd
}

// newS3Server prepares a server on a free port, and the environment of its clients. start starts it.
func newS3Server(t *testing.T) *s3Server {
	t.Helper()
	s := &s3Server{program: buildRclone(t), bucket: filepath.Join(t.TempDir(), "runs"), cache: t.TempDir()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		s.address = listener.Addr().String()
		listener.Close()
		err = os.Mkdir(s.bucket, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://"+s.address)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3Secret)
	t.Setenv("XDG_CACHE_HOME", s.cache)
	t.Cleanup(s.kill)
	return s
}

// start starts the server, and waits until it accepts connections.
func (s *s3Server) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(s.program, "serve", "s3", "--auth-key", "key,"+s3Secret, "--addr", s.address,
		filepath.Dir(s.bucket))
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the S3 server listens", func() bool {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// kill ends the server at once.
func (s *s3Server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}
