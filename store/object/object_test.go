package object

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// bucket is a server of one bucket "bkt" with what the tests need of S3: objects by path style, errors by code.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	order   []string                       // keys as they were written
	spoil   func(key string) (code string) // an error for a request; damage: what is written is not what came
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, ok := strings.CutPrefix(r.URL.Path, "/bkt/")
	data, there := b.objects[key]
	code := ""
	if b.spoil != nil {
		code = b.spoil(r.Method + " " + key)
	}
	switch {
	case ok && key == "" && r.Method == http.MethodGet:
		b.list(w, r)
		return
	case !ok:
		code = "NoSuchBucket"
	case code != "" && code != "damage":
	case r.Method == http.MethodPut:
		data = body(r)
		if code == "damage" {
			data[0] ^= 1
		}
		b.objects[key], b.order, code = data, append(b.order, key), ""
		w.Header().Set("ETag", `"0"`)
		return
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		return
	case !there:
		code = "NoSuchKey"
	}
	if code != "" && code != "damage" {
		w.WriteHeader(map[string]int{"SlowDown": 503, "SignatureDoesNotMatch": 403, "InvalidBucketName": 400}[code] +
			404*btoi(code[0] == 'N'))
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		return
	}
	w.Header().Set("ETag", `"0"`)
	http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(data))
}

// list answers with the keys below a prefix, and with what they have in common up to a delimiter.
func (b *bucket) list(w http.ResponseWriter, r *http.Request) {
	prefix, delimiter := r.URL.Query().Get("prefix"), r.URL.Query().Get("delimiter")
	fmt.Fprint(w, "<ListBucketResult>")
	last := ""
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		below, ok := strings.CutPrefix(key, prefix)
		folder, _, deeper := strings.Cut(below, "/")
		switch {
		case !ok:
		case delimiter == "/" && deeper && folder != last:
			last = folder
			fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s%s/</Prefix></CommonPrefixes>", prefix, folder)
		case delimiter != "/" || !deeper:
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", key, len(b.objects[key]))
		}
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// body is what a request carries, in signed chunks or plain.
func body(r *http.Request) (data []byte) {
	in := bufio.NewReader(r.Body)
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		data, _ = io.ReadAll(in)
		return data
	}
	for {
		line, err := in.ReadString('\n')
		n := 0
		if fmt.Sscanf(line, "%x", &n); err != nil || n == 0 {
			return data
		}
		chunk := make([]byte, n+2)
		io.ReadFull(in, chunk)
		data = append(data, chunk[:n]...)
	}
}

// place starts a bucket, and opens the place in it.
func place(t *testing.T, name string) (*Store, *bucket) {
	t.Helper()
	b := &bucket{objects: map[string][]byte{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s, err := Open("s3://" + name)
	if err != nil {
		t.Fatal(err)
	}
	s.firstWait, s.waits, s.Patience = time.Millisecond, time.Millisecond, time.Minute
	return s, b
}

// sealed makes a sealed run of a file and one segment.
func sealed(t *testing.T) string {
	t.Helper()
	run, err := rundir.Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	segment, err := run.Segment(1)
	for _, err := range []error{err, segment.WriteJSON(rundir.MetadataName, "segment"), segment.Seal(),
		run.AddSegment("seg-00001"), run.WriteJSON(rundir.MetadataName, strings.Repeat("run", 1<<16)), run.Seal()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return run.Path()
}

func TestPushAndFetch(t *testing.T) {
	s, b := place(t, "bkt/p/run_1")
	run, ctx := sealed(t), t.Context()
	fails := 2 // an outage
	b.spoil = func(key string) string {
		if strings.HasPrefix(key, "PUT") && fails > 0 {
			fails--
			return "SlowDown"
		}
		return ""
	}
	if err := s.Push(ctx, run); err != nil {
		t.Fatal(err)
	}
	want := "p/run_1/metadata.json p/run_1/seg-00001/metadata.json p/run_1/seg-00001/manifest.json " +
		"p/run_1/manifest.json"
	if got := strings.Join(b.order, " "); got != want {
		t.Errorf("written %q, want %q: a manifest after what it lists", got, want)
	}
	again, _ := Open("s3://bkt/p/run_1")
	if err := again.Push(ctx, run); err != nil || len(b.order) != 4 {
		t.Errorf("pushed again: %v, %d objects written, want 4", err, len(b.order))
	}
	cache := Cache{Dir: t.TempDir(), Bytes: 1 << 20}
	for range 2 {
		dir, err := s.Fetch(ctx, cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, filepath.Join(dir, "seg-00001")} {
			r, err := rundir.Verify(path)
			if err != nil || !r.Sealed || len(r.Missing)+len(r.Changed)+len(r.Extra) > 0 {
				t.Errorf("%s: %+v, %v", path, r, err)
			}
		}
		clear(b.objects["p/run_1/metadata.json"]) // the second time nothing but the manifest is read
	}
}

// TestFetchGoesOn: of a copy that was cut off, files stay that are the run's, and not those that only have its size.
func TestFetchGoesOn(t *testing.T) {
	s, b := place(t, "bkt/p/run_1")
	if err := s.Push(t.Context(), sealed(t)); err != nil {
		t.Fatal(err)
	}
	cache := Cache{Dir: t.TempDir(), Bytes: 1 << 20}
	dir, err := s.Fetch(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(filepath.Dir(dir), "part")
	other := filepath.Join(part, rundir.MetadataName)
	text, err := os.ReadFile(filepath.Join(dir, rundir.MetadataName))
	if err := errors.Join(err, os.Rename(dir, part), os.WriteFile(other, bytes.ToUpper(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	clear(b.objects["p/run_1/seg-00001/metadata.json"]) // there already, and so not read
	if dir, err = s.Fetch(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	if r, err := rundir.Verify(dir); err != nil || len(r.Changed) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCacheBound shows that a copy makes room for another one, and that one larger than the bound is refused.
func TestCacheBound(t *testing.T) {
	s, _ := place(t, "bkt")
	run := sealed(t)
	cache := Cache{Dir: t.TempDir(), Bytes: 300 << 10} // a run is 192 KiB
	for _, name := range []string{"run_1", "run_2"} {
		to := s.Below(name)
		if err := to.Push(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Fetch(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
	}
	if n := rundir.SizeOf(cache.Dir); n > cache.Bytes {
		t.Errorf("the cache has %d bytes, its bound is %d", n, cache.Bytes)
	}
	if _, err := s.Below("run_1").Fetch(t.Context(), Cache{t.TempDir(), 1000}); err == nil {
		t.Error("a run of 192 KiB went into a cache of 1000 bytes")
	}
}

func TestPushErrors(t *testing.T) {
	damage := func(method string) func(string) string {
		return func(key string) string {
			if strings.HasPrefix(key, method) {
				return "damage"
			}
			return ""
		}
	}
	for name, c := range map[string]struct {
		url   string
		spoil func(string) string
		want  string
	}{
		"bucket":      {"other/p", nil, "make the bucket other"},
		"credentials": {"bkt", func(string) string { return "SignatureDoesNotMatch" }, "check AWS_ACCESS_KEY_ID"},
		"name":        {"bkt", func(string) string { return "InvalidBucketName" }, "another bucket than bkt"},
		"outage":      {"bkt", func(string) string { return "SlowDown" }, "check the endpoint 127.0.0.1"},
		"damage":      {"bkt", damage("PUT"), "read back and is not what was recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := place(t, c.url)
			b.spoil, s.Patience = c.spoil, 50*time.Millisecond
			err := s.Push(t.Context(), sealed(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want %q", err, c.want)
			}
			for key := range b.objects {
				if strings.HasSuffix(key, rundir.ManifestName) {
					t.Errorf("%s is there", key)
				}
			}
		})
	}
}

// TestPushNothing: a folder that is not there is no run that waits to be sealed.
func TestPushNothing(t *testing.T) {
	s, _ := place(t, "bkt")
	dir := t.TempDir()
	for path, want := range map[string]string{dir: "is not sealed", dir + "/no": "there is no such folder"} {
		if err := s.Push(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestChanged(t *testing.T) {
	s, b := place(t, "bkt/run_1")
	run := sealed(t)
	if _, err := s.Fetch(t.Context(), Cache{t.TempDir(), 1 << 20}); !errors.Is(err, ErrNoRun) {
		t.Errorf("%v, want ErrNoRun", err)
	}
	if err := s.Push(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	b.objects["run_1/metadata.json"][7] ^= 1 // in the store
	if _, err := s.Fetch(t.Context(), Cache{t.TempDir(), 1 << 20}); !errors.Is(err, rundir.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
	name := filepath.Join(run, rundir.MetadataName) // and here
	text, _ := os.ReadFile(name)
	text[7] ^= 1
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Below("x").Push(context.Background(), run); !errors.Is(err, rundir.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY"} {
		t.Setenv(name, "")
	}
	for url, want := range map[string]string{
		"s3://":               "give s3://BUCKET/PREFIX",
		"s3://b":              "shorter than 3 characters",
		"s3://bkt":            "set AWS_ACCESS_KEY_ID",
		"s3://key:secret@bkt": "the URL has credentials in it",
		"s3://bkt?regio=x":    "unknown parameter",
	} {
		_, err := Open(url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
