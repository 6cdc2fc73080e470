package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// outcome is the result of sending a message.
type outcome uint8

const (
	sent    outcome = iota
	refused         // the collector does not want it
	unsent          // the time to send it had passed
)

// The pause after a failed attempt: it grows from the first to the last, unless the collector says how long.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// lane is the way of one signal to the collector. It is for one goroutine.
type lane struct {
	*Endpoint
	exporter *Exporter
	failing  bool // the last attempt failed, and that was said
	refusing bool // … as was that messages are refused
	partial  bool // … or parts of them
}

// send sends a message, made anew for each attempt, until the collector has taken it or refused it, or the exporter's
// time is over. rejected is how many spans or data points of a message that was sent it did not take.
func (l *lane) send(of func() message) (became outcome, rejected int64) {
	pause := firstPause
	for {
		wait, n, err := l.attempt(of())
		var no *refusal
		switch {
		case err == nil:
			if l.failing {
				l.remark("answers again")
			}
			l.failing = false
			return sent, n
		case errors.As(err, &no):
			if !l.refusing {
				l.remark(err.Error() + "; spans that are refused are dropped and counted")
			}
			l.refusing = true
			return refused, 0
		case !l.failing:
			l.failing = true
			l.remark(err.Error() + "; trying again")
		}
		closing := l.exporter.closing
		if wait > 0 || l.exporter.isClosing() {
			closing = nil // the collector says when to come again; at the end attempts are a second apart
		}
		if wait == 0 {
			wait = pause/2 + rand.N(pause/2+1)
			pause = min(2*pause, lastPause)
			if closing == nil {
				wait = min(wait, firstPause)
			}
		}
		select {
		case <-time.After(wait):
		case <-closing:
		case <-l.exporter.ctx.Done():
			return unsent, 0
		}
	}
}

// refusal is an answer that trying again does not change.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// attempt sends a message once. wait is how long the collector wants to be left alone, 0: it does not say; rejected is
// how much of the message it did not take.
func (l *lane) attempt(body message) (wait time.Duration, rejected int64, err error) {
	if l.Gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err = w.Write(body)
		if err = errors.Join(err, w.Close()); err != nil {
			return 0, 0, &refusal{fmt.Sprintf("compress a message: %v", err)}
		}
		body = packed.Bytes()
	}
	ctx, cancel := context.WithTimeout(l.exporter.ctx, l.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, bytes.NewReader(body))
	if err != nil {
		return 0, 0, &refusal{err.Error()}
	}
	for _, h := range l.Headers {
		request.Header.Set(h[0], h[1])
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "llamatap/"+l.exporter.o.Version)
	if l.Gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := l.exporter.o.Transport.RoundTrip(request)
	if err != nil {
		return 0, 0, cause(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		if err != nil {
			return 0, 0, cause(err)
		}
		n, why := partial(text)
		if n > 0 && !l.partial {
			l.partial = true
			l.remark(fmt.Sprintf("refuses a part: %q; it is dropped and counted", why))
		}
		return 0, n, nil
	case code == 429 || code == 502 || code == 503 || code == 504:
		return retryAfter(response.Header.Get("Retry-After"), time.Now()), 0, fmt.Errorf("answered %s", response.Status)
	default:
		return 0, 0, &refusal{"answered " + response.Status}
	}
}

// cause is an error of the network without the address, which is printed next to it.
func cause(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return err
}

// retryAfter reads the header of that name: seconds, or a time.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func (l *lane) remark(text string) {
	if f := l.exporter.o.Remark; f != nil {
		f(l.URL + ": " + text)
	}
}
