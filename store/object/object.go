// Package object copies sealed runs to object storage that speaks S3, and back. Every object is read back and compared
// with the SHA-256 of the manifest; the manifest goes last, so that what has one is whole.
package object

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// ErrNoRun occurs when there is no sealed run at a URL.
var ErrNoRun = errors.New("no sealed run there: give the URL of a run whose push has ended, or push it again")

// ErrQuit occurs when [Store].Quit ends a push.
var ErrQuit = errors.New("ended before everything was copied")

// Is reports whether text is the URL of a place in object storage.
func Is(text string) bool { return strings.HasPrefix(text, "s3://") }

// Store is a place in object storage. One goroutine uses it at a time; any may call Has.
type Store struct {
	connection
	prefix   string
	verified *sums
}

// connection asks the server of a bucket until it answers.
type connection struct {
	// Remark, unless it is nil, gets a line when the store does not answer and is tried again.
	Remark func(line string)
	// Patience is how long a store that does not answer is tried again; 0: until the context ends.
	Patience time.Duration
	// Quit, once it is closed, ends a push between two requests. A context that ends cuts off an upload, and what was
	// sent of it may stay in the store.
	Quit <-chan struct{}

	client           *minio.Client
	url              string // as the user gave it, without parameters
	endpoint, bucket string
	firstWait, waits time.Duration // until the next attempt, at first and at most
}

// sums are the SHA-256 of objects that were read back, by key.
type sums struct {
	mu sync.Mutex
	of map[string]string
}

func newSums() *sums { return &sums{of: map[string]string{}} }

func (s *sums) has(key, sum string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[key] == sum
}

func (s *sums) add(key, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[key] = sum
}

// Open returns the place that a URL s3://BUCKET/PREFIX names; it asks the network for nothing. Endpoint, region and
// credentials come from the AWS_ variables, and from the parameters endpoint, region, use_path_style and disable_https.
func Open(text string) (*Store, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		return nil, errors.New("not a place in object storage: give s3://BUCKET/PREFIX")
	}
	if u.User != nil {
		return nil, errors.New("the URL has credentials in it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return nil, fmt.Errorf("bucket %q: %w: give s3://BUCKET/PREFIX", u.Host, err)
	}
	o := minio.Options{Secure: true, MaxRetries: 1, Region: cmp.Or(os.Getenv("AWS_REGION"),
		os.Getenv("AWS_DEFAULT_REGION"))}
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	style, plain := "", ""
	for key, values := range u.Query() {
		known := map[string]*string{"endpoint": &endpoint, "region": &o.Region, "use_path_style": &style,
			"disable_https": &plain}[key]
		if known == nil {
			return nil, fmt.Errorf("unknown parameter %q: give endpoint, region, use_path_style or disable_https", key)
		}
		*known = values[0]
	}
	if endpoint == "" {
		endpoint, o.Region = "s3.amazonaws.com", cmp.Or(o.Region, "us-east-1")
	} else {
		o.Region, o.BucketLookup = cmp.Or(o.Region, "us-east-1"), minio.BucketLookupPath
	}
	if path, _ := strconv.ParseBool(style); path {
		o.BucketLookup = minio.BucketLookupPath
	}
	if host, ok := strings.CutPrefix(endpoint, "http://"); ok {
		endpoint, o.Secure = host, false
	}
	if no, _ := strconv.ParseBool(plain); no {
		o.Secure = false
	}
	endpoint = strings.TrimSuffix(strings.TrimPrefix(endpoint, "https://"), "/")
	o.Creds = credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{}})
	if keys, err := o.Creds.GetWithContext(nil); err != nil || keys.AccessKeyID == "" {
		return nil, errors.New("no credentials for object storage: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"or give a profile in ~/.aws/credentials")
	}
	client, err := minio.New(endpoint, &o)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w: set AWS_ENDPOINT_URL to http://HOST:PORT or https://HOST",
			endpoint, err)
	}
	prefix := strings.Trim(path.Clean("/"+u.Path), "/")
	return &Store{connection{client: client, url: strings.TrimSuffix("s3://"+u.Host+"/"+prefix, "/"),
		endpoint: endpoint, bucket: u.Host, firstWait: time.Second / 2, waits: 30 * time.Second}, prefix,
		newSums()}, nil
}

// Below returns the place of that name within this one.
func (s *Store) Below(name string) *Store {
	below := *s
	below.url, below.prefix, below.verified = s.url+"/"+name, path.Join(s.prefix, name), newSums()
	return &below
}

// String is the URL, without parameters.
func (c *connection) String() string { return c.url }

// Parent is the URL of the place that this one is in.
func (c *connection) Parent() string { return c.url[:strings.LastIndexByte(c.url, '/')] }

// Check asks whether the bucket is there.
func (s *Store) Check(ctx context.Context) error {
	return s.insist(ctx, func() error {
		there, err := s.client.BucketExists(ctx, s.bucket)
		if err == nil && !there {
			return permanent{fmt.Errorf("there is no bucket %s: make it, or give another one in the URL", s.bucket)}
		}
		return err
	})
}

// Push copies a sealed run directory. What is there already is only verified, and so is what was moved there while the
// run was recorded; until the context ends, a store that does not answer is tried again. After an error it can be
// called again.
func (s *Store) Push(ctx context.Context, dir string) error {
	m, err := rundir.ReadManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("push %s: there is no such folder: give a run directory", dir)
		}
		return fmt.Errorf("push %s: the run is not sealed: wait until it ends, or repair it with llamatap verify "+
			"--repair", dir)
	}
	if err == nil {
		err = s.PushFiles(ctx, dir, m.Files)
	}
	if err == nil {
		err = s.manifest(ctx, dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		if m, failed := rundir.ReadMetadata(dir); failed == nil && m.Moved != nil {
			err = fmt.Errorf("%w: %s were moved to %s while the run was recorded: push the run to that place, or "+
				"restore there what is missing", err, m.Moved, m.Moved.To)
		}
	}
	if err != nil {
		return fmt.Errorf("push %s: %w", dir, err)
	}
	return nil
}

// Has reports whether a file of this run was read back from the store, and for the manifest of a segment the whole
// segment.
func (s *Store) Has(f rundir.File) bool { return s.verified.has(path.Join(s.prefix, f.Name), f.SHA256) }

// PushFiles copies files of a run directory, sealed or not. A segment's manifest stands for the segment.
func (s *Store) PushFiles(ctx context.Context, dir string, files []rundir.File) error {
	for _, f := range files {
		select {
		case <-s.Quit:
			return ErrQuit
		default:
		}
		if s.Has(f) {
			continue
		}
		if segment, ok := strings.CutSuffix(f.Name, "/"+rundir.ManifestName); ok {
			m, err := rundir.ReadManifest(filepath.Join(dir, segment))
			if errors.Is(err, os.ErrNotExist) {
				m, err = s.manifestOf(ctx, f)
			}
			if err != nil {
				return err
			}
			for i := range m.Files {
				m.Files[i].Name = segment + "/" + m.Files[i].Name
			}
			if err := s.PushFiles(ctx, dir, m.Files); err != nil {
				return err
			}
		}
		if err := s.put(ctx, dir, f); err != nil {
			return err
		}
	}
	return nil
}

// manifestOf reads the manifest of a segment that the store alone has.
func (s *Store) manifestOf(ctx context.Context, f rundir.File) (m rundir.Manifest, err error) {
	err = s.insist(ctx, func() error {
		var text bytes.Buffer
		_, sum, err := s.sumOf(ctx, path.Join(s.prefix, f.Name), &text, f.Size)
		switch {
		case missing(err):
			return permanent{fmt.Errorf("%s/%s: %w", s.url, f.Name, os.ErrNotExist)}
		case err != nil:
			return err
		case sum != f.SHA256:
			return permanent{fmt.Errorf("%s/%s: %w: restore it there, this directory does not have it", s.url, f.Name,
				rundir.ErrChanged)}
		}
		if m, err = rundir.ParseManifest(text.Bytes()); err != nil {
			return permanent{err}
		}
		return nil
	})
	return m, err
}

// manifest copies the manifest of a run.
func (s *Store) manifest(ctx context.Context, dir string) error {
	text, err := rundir.ReadFile(filepath.Join(dir, rundir.ManifestName), rundir.MaxDocument)
	if err != nil {
		return err
	}
	return s.put(ctx, dir, rundir.File{Name: rundir.ManifestName, Size: int64(len(text)), SHA256: sumText(text)})
}

func sumText(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// put makes sure that the store has a file.
func (s *Store) put(ctx context.Context, dir string, f rundir.File) error {
	key, local := path.Join(s.prefix, f.Name), filepath.Join(dir, filepath.FromSlash(f.Name))
	return s.insist(ctx, func() error {
		if size, sum, err := s.sumOf(ctx, key, io.Discard, f.Size); err != nil && !missing(err) {
			return err
		} else if err == nil && size == f.Size && sum == f.SHA256 {
			s.verified.add(key, sum)
			return nil
		}
		file, err := rundir.OpenFile(local)
		if err != nil {
			return permanent{err}
		}
		defer file.Close()
		hash := sha256.New()
		_, err = s.client.PutObject(ctx, s.bucket, key, io.TeeReader(io.LimitReader(file, f.Size), hash), f.Size,
			minio.PutObjectOptions{SendContentMd5: true, NumThreads: 1,
				PartSize: uint64(max(8<<20, f.Size/9000))})
		if err != nil {
			return err
		}
		if sum := hex.EncodeToString(hash.Sum(nil)); sum != f.SHA256 {
			err := s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
			return permanent{errors.Join(fmt.Errorf("%s: %w: repair the run with llamatap verify --repair", local,
				rundir.ErrChanged), err)}
		}
		if size, sum, err := s.sumOf(ctx, key, io.Discard, f.Size); err != nil {
			return err
		} else if size != f.Size || sum != f.SHA256 {
			return fmt.Errorf("s3://%s/%s was read back and is %w", s.bucket, key, rundir.ErrChanged)
		}
		s.verified.add(key, f.SHA256)
		return nil
	})
}

// sumOf reads an object into to, at most one byte more than it should have.
func (c *connection) sumOf(ctx context.Context, key string, to io.Writer, most int64) (int64, string, error) {
	o, err := c.client.GetObject(ctx, c.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return 0, "", err
	}
	defer o.Close()
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(o, most+1))
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// permanent is an error that another attempt would find again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

func missing(err error) bool { return minio.ToErrorResponse(err).Code == minio.NoSuchKey }

// insist tries until it succeeds, fails for good or the context ends.
func (c *connection) insist(ctx context.Context, try func() error) error {
	var since time.Time // of the first failure
	for wait := c.firstWait; ; wait = min(2*wait, c.waits) {
		err := try()
		if err == nil {
			return nil
		}
		var lasting permanent
		what := c.remedy(err)
		if errors.As(err, &lasting) || what != "" {
			return fmt.Errorf("%w%s", err, what)
		}
		if c.Remark != nil && wait == c.firstWait {
			c.Remark(fmt.Sprintf("%s does not answer and is tried again: %v", c.url, err))
		}
		if since.IsZero() {
			since = time.Now()
		}
		away := fmt.Errorf("%w: check the endpoint %s (AWS_ENDPOINT_URL), then try again", err, c.endpoint)
		if c.Patience > 0 && time.Since(since)+wait > c.Patience {
			return away
		}
		select {
		case <-c.Quit:
			return fmt.Errorf("%w: %w", ErrQuit, away)
		case <-ctx.Done():
			return away
		case <-time.After(wait):
		}
	}
}

// remedy says what to do against an error that remains; "": the store may answer later.
func (c *connection) remedy(err error) string {
	switch r := minio.ToErrorResponse(err); {
	case r.Code == minio.NoSuchBucket:
		return ": make the bucket " + c.bucket + ", or give another one in the URL"
	case r.Code == "InvalidBucketName":
		return ": give another bucket than " + c.bucket + " in the URL"
	case r.Code == "InvalidAccessKeyId", r.Code == "SignatureDoesNotMatch", r.Code == minio.AccessDenied,
		r.Code == "ExpiredToken", r.Code == "InvalidToken", r.StatusCode == 403, r.StatusCode == 401:
		return ": check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and what they may do in bucket " +
			c.bucket
	}
	return ""
}
