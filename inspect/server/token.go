package server

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// minToken is how many characters a token has at least.
const minToken = 16

// unixScheme begins the address of a Unix socket: unix:PATH.
const unixScheme = "unix:"

// NewToken makes a token of 128 random bits or more.
func NewToken() string { return rand.Text() }

// CheckToken reports whether a token is long enough not to be guessed.
func CheckToken(token string) error {
	if len(token) < minToken {
		return fmt.Errorf("the token has %d characters: give at least %d, as from: openssl rand -hex 16", len(token),
			minToken)
	}
	return nil
}

// stateDirs are the folders in which a user's token files may lie, the preferred one first. Only that user reads them.
func stateDirs() (dirs []string) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		dirs = append(dirs, filepath.Join(dir, "llamatap"))
	}
	state := os.Getenv("XDG_STATE_HOME")
	if home, err := os.UserHomeDir(); err == nil && !filepath.IsAbs(state) {
		state = filepath.Join(home, ".local", "state")
	}
	if filepath.IsAbs(state) {
		dirs = append(dirs, filepath.Join(state, "llamatap"))
	}
	return dirs
}

// tokenName is the name of the file with the token of the server at addr, HOST:PORT or unix:PATH.
func tokenName(addr string) string {
	if path, ok := strings.CutPrefix(addr, unixScheme); ok {
		if absPath, err := filepath.Abs(path); err == nil {
			addr = unixScheme + absPath
		}
	}
	return "serve-" + strings.NewReplacer(":", "_", "/", "_", "%", "_", "[", "", "]", "").Replace(addr) + ".token"
}

// SaveToken writes the token of the server at addr to a file that its user alone may read, named after the address.
// [readToken] finds it; remove deletes it unless another server has taken its place.
func SaveToken(addr, token string) (path string, remove func(), err error) {
	for _, dir := range stateDirs() {
		path = filepath.Join(dir, tokenName(addr))
		if err = saveToken(path, token); err == nil {
			return path, func() {
				if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == token {
					os.Remove(path)
				}
			}, nil
		}
	}
	err = cmp.Or(err, errors.New("neither XDG_RUNTIME_DIR, XDG_STATE_HOME nor HOME is set"))
	return "", nil,
		fmt.Errorf("write the token file: %w: set XDG_STATE_HOME to a folder of your own, or give --token @FILE", err)
}

func saveToken(path, token string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ownFile(info) {
		return fmt.Errorf("%s is not a folder that you alone can write to", dir)
	}
	return rundir.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, token+"\n")
		return err
	})
}

// readToken returns the token of the server that this user runs at addr, HOST:PORT or unix:PATH.
func readToken(addr string) (string, error) {
	names := []string{tokenName(addr)}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		if host == "localhost" {
			names = append(names, tokenName("127.0.0.1:"+port), tokenName("[::1]:"+port))
		}
		names = append(names, tokenName("[::]:"+port), tokenName("0.0.0.0:"+port)) // a server at every address
	}
	for _, dir := range stateDirs() {
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return strings.TrimSpace(string(text)), err
		}
	}
	return "", fmt.Errorf("no token of a server at %s: is 'llamatap serve' running there, as this user?", addr)
}
