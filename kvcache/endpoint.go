package kvcache

import (
	"fmt"
	"net"
	"strings"
)

// ParseEndpoint takes an endpoint of KV events apart: an address for net.Dial or net.Listen, and which of them.
func ParseEndpoint(text string) (address string, connect bool, err error) {
	rest, connect := strings.CutPrefix(text, "connect:")
	address, ok := strings.CutPrefix(rest, "tcp://")
	host, port, err := net.SplitHostPort(address)
	if err != nil || !ok || port == "" || connect && (host == "" || host == "*") {
		return "", false, fmt.Errorf("invalid endpoint %q: write tcp://ADDRESS:PORT, such as tcp://127.0.0.1:5557, or "+
			"connect:tcp://HOST:PORT", text)
	}
	if host == "*" {
		host = ""
	}
	return net.JoinHostPort(host, port), connect, nil
}
