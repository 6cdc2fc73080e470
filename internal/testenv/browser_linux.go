package testenv

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Browser is a Chromium without a window, with one page, driven by the DevTools protocol through a pipe.
type Browser struct {
	t       testing.TB
	to      *os.File
	session string

	mu      sync.Mutex
	asked   int
	answers map[int]chan message
	errors  []string
	ended   chan struct{} // closed when nothing can be read any more
}

// message is a command, an answer or an event of the protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// NeedBrowser starts a Chromium, which the test's end kills.
func NeedBrowser(t testing.TB) *Browser {
	t.Helper()
	path := chromium.find(t, "chromium")
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars", "--disable-background-networking", "--disable-extensions",
		"--remote-debugging-pipe", "--user-data-dir="+home)
	cmd.ExtraFiles = []*os.File{in, out}
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &Browser{t: t, to: to, answers: map[int]chan message{}, ended: make(chan struct{})}
	go b.read(from)
	t.Cleanup(func() {
		b.to.Close() // Chromium ends with its pipe
		select {
		case <-b.ended:
		case <-time.After(Patience()):
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and what it started
		cmd.Wait()
		from.Close()
		os.RemoveAll(home)
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		ID string `json:"sessionId"`
	}
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.ID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

// read hands answers to who asked, and keeps what the page reports as an error.
func (b *Browser) read(from *os.File) {
	defer close(b.ended)
	for reader := bufio.NewReader(from); ; {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.answers[m.ID]; answer != nil {
			answer <- m
			delete(b.answers, m.ID)
		}
		params, _ := m.Params.(map[string]any)
		entry, _ := params["entry"].(map[string]any)
		if m.Method == "Runtime.exceptionThrown" ||
			m.Method == "Runtime.consoleAPICalled" && params["type"] == "error" ||
			m.Method == "Log.entryAdded" && entry["level"] == "error" {
			b.errors = append(b.errors, string(text[:len(text)-1]))
		}
		b.mu.Unlock()
	}
}

// Call calls a method of the protocol and waits for its answer.
func (b *Browser) Call(method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.asked++
	m := message{ID: b.asked, SessionID: b.session, Method: method, Params: params}
	answer := make(chan message, 1)
	b.answers[m.ID] = answer
	b.mu.Unlock()
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m = <-answer:
	case <-b.ended:
		b.t.Fatalf("%s: the browser ended", method)
	case <-time.After(Patience()):
		b.t.Fatalf("%s: no answer", method)
	}
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
	}
}

// Open gives the page a size and colours, and opens an address in it.
func (b *Browser) Open(address string, width, height int, dark bool) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false}, nil)
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.Call("Page.navigate", map[string]any{"url": address}, nil)
	b.Until(`document.readyState === "complete"`)
}

// Eval evaluates an expression of JavaScript in the page, and what it promises.
func (b *Browser) Eval(expression string, into any) {
	b.t.Helper()
	var answer struct {
		Result    struct{ Value json.RawMessage }
		Exception any `json:"exceptionDetails"`
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true},
		&answer)
	if answer.Exception != nil {
		b.t.Fatalf("%s: %v", expression, answer.Exception)
	}
	if into != nil {
		if err := json.Unmarshal(answer.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %s: %v", expression, answer.Result.Value, err)
		}
	}
}

// Until waits until an expression is true.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	Until(b.t, expression, func() (is bool) {
		b.Eval(fmt.Sprintf("Boolean(%s)", expression), &is)
		return is
	})
}

// Picture is the page as a PNG.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	var picture struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// Errors are what the page and its console reported since the last call.
func (b *Browser) Errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	errors := b.errors
	b.errors = nil
	return errors
}
