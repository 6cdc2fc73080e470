package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds what a client reads of an answer.
const maxAnswer = 16 << 20

// IsAddress reports whether text names a server, http://HOST:PORT or unix:PATH, rather than a folder.
func IsAddress(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, unixScheme)
}

// Ask gives the run that a server shows a command, with the token that this user's server left in its file. The
// server is given as http://HOST:PORT or unix:PATH.
func Ask(ctx context.Context, server string, c Command) (json.RawMessage, error) {
	addr, base, client := server, "http://localhost", &http.Client{Timeout: time.Minute}
	if path, ok := strings.CutPrefix(server, unixScheme); ok {
		client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
	} else {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("%q: give a server as http://HOST:PORT", server)
		}
		addr, base = u.Host, "http://"+u.Host
	}
	method, body := http.MethodGet, []byte(nil)
	if c.Command != "status" {
		method = http.MethodPut
		body, _ = json.Marshal(c)
	}
	request, err := http.NewRequestWithContext(ctx, method, base+"/api/v1/level", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	token, missing := readToken(addr)
	if missing == nil {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	if response.StatusCode == http.StatusOK {
		return answer, nil
	}
	var said struct {
		Error string `json:"error"`
	}
	switch {
	case response.StatusCode == http.StatusUnauthorized && missing != nil:
		return nil, missing
	case json.Unmarshal(answer, &said) == nil && said.Error != "":
		return nil, fmt.Errorf("%s: %s", server, said.Error)
	}
	return nil, fmt.Errorf("%s: answered %s", server, response.Status)
}
