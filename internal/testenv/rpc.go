package testenv

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// RPCBackend returns the environment entry that makes any llama.cpp program load the RPC backend,
// which is kept apart because it is wanted only here.
func RPCBackend(t testing.TB) string {
	t.Helper()
	return "GGML_BACKEND_PATH=" + filepath.Join(NeedLlama(t), "backends-rpc", "libggml-rpc.so")
}

// NeedRPC serves the CPU as an RPC device on loopback until the test ends, and returns its endpoint
// (host:port, for --rpc). Programs that use it need [RPCBackend] in their environment.
func NeedRPC(t testing.TB) string {
	t.Helper()
	endpoint := freeEndpoint(t)
	args := RPCServer(t, endpoint)
	server := exec.Command(args[0], args[1:]...)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-exited
	})
	awaitServing(t, endpoint, exited)
	return endpoint
}

// RPCServer is the command that serves the CPU as an RPC device at an endpoint.
func RPCServer(t testing.TB, endpoint string) []string {
	t.Helper()
	dist := NeedLlama(t)
	return []string{buildRPCServer(t, dist), filepath.Join(dist, "run"),
		filepath.Join(dist, "backends-rpc", "libggml-rpc.so"), endpoint}
}

// buildRPCServer compiles cgo/oracle/rpcserver.c against dist.
func buildRPCServer(t testing.TB, dist string) string {
	t.Helper()
	libs, glibc := libraries(t, dist)
	return compile(t, "rpcserver.c",
		"-I"+filepath.Join(dist, "usr", "include"), "-L"+libs,
		"-Wl,--allow-shlib-undefined", "-lggml", "-lggml-base",
		"-Wl,--disable-new-dtags", "-Wl,-rpath,"+glibc+":"+libs,
		"-Wl,--dynamic-linker,"+glob1(t, filepath.Join(glibc, "ld-linux-*")))
}

// freeEndpoint returns a loopback address that nobody listens on now.
func freeEndpoint(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// awaitServing returns when something answers at endpoint, and fails when the server ends instead.
func awaitServing(t testing.TB, endpoint string, exited chan error) {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", endpoint)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("rpc server ended early: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
