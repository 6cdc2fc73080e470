package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// Listen listens on addr: HOST:PORT, or unix:PATH for a socket that its user alone may connect to. A socket that a
// server left behind is replaced.
func Listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixScheme); ok {
		return listenUnix(path)
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return nil, fmt.Errorf("address %q: give HOST:PORT, such as 127.0.0.1:8080, or unix:PATH", addr)
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use: give another port, as in --listen 127.0.0.1:0", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: give another address with --listen", err)
	}
	return l, nil
}

func listenUnix(path string) (l net.Listener, err error) {
	if path == "" {
		return nil, errors.New("unix: names no socket: give unix:PATH")
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("%s is in use: give another path", path)
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			os.Remove(path)
		}
	}
	err = withPrivateMode(func() error {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: give another path with --listen", err)
	}
	return l, nil
}

// AddressOf is the address of a listener as [Listen] takes it and [SaveToken] names files after.
func AddressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixScheme + l.Addr().String()
	}
	return l.Addr().String()
}
