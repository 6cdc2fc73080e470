package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/object"
)

func pushCommand() *cli.Command {
	return &cli.Command{
		Name: "push", Summary: "copy a sealed run to object storage", Usage: "RUN s3://BUCKET[/PREFIX] [--retry TIME]",
		Min: 2, Max: 2,
		Text: `Copies the files of a sealed run to s3://BUCKET/PREFIX/RUN_ID, reads each back and compares it with the
SHA-256 of the run's manifest. The manifest is copied last: a run that has one there is whole. What is there already is
only compared, so a push that was cut off is repeated. Commands that read a run take the URL that is printed.

Endpoint, region and credentials are those of AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, or of ~/.aws/credentials; docs/RUN_DIRECTORY.md has the parameters of the URL.

  llamatap push 8c1f s3://runs/server-1
  llamatap inspect s3://runs/server-1/run_20261122_113205_8c1f
`,
		Define: func(f *cli.Flags) func([]string) error {
			retry := time.Minute
			f.Add("--retry TIME", &retry, "how long a store that does not answer is tried again, such as 30s or 1h")
			return func(args []string) error {
				dir, err := findRun(args[0])
				if err != nil {
					return err
				}
				if dir, err = filepath.Abs(dir); err != nil {
					return err
				}
				to, err := openStore(args[1])
				if err != nil {
					return err
				}
				to = to.Below(filepath.Base(dir))
				to.Patience = retry
				ctx, stop := untilInterrupt(syscall.SIGTERM)
				defer stop()
				if err := to.Push(ctx, dir); err != nil {
					return err
				}
				_, err = present.Printf("%s\n", to)
				return err
			}
		},
	}
}

// openStore opens a place in object storage that a user names.
func openStore(url string) (*object.Store, error) {
	s, err := object.Open(url)
	if err != nil {
		return nil, cli.Wrong(err)
	}
	s.Remark = func(line string) { fmt.Fprintln(present.Err, "llamatap:", line) }
	return s, nil
}

// Of the cache of runs from object storage: how large it may become, and how long a store may not answer.
const (
	cacheBytes    = 64 << 30
	cachePatience = 10 * time.Second
)

// openCached opens a place in object storage to read it, and the user's cache of runs.
func openCached(url string) (*object.Store, object.Cache, error) {
	from, err := openStore(url)
	if err != nil {
		return nil, object.Cache{}, err
	}
	from.Patience = cachePatience
	cache, err := runCache()
	return from, cache, err
}

// fetchRun copies a run from object storage into the user's cache, and returns the copy.
func fetchRun(url string) (string, error) {
	from, cache, err := openCached(url)
	if err != nil {
		return "", err
	}
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	return from.Fetch(ctx, cache)
}

func runCache() (object.Cache, error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		return object.Cache{}, fmt.Errorf("cache of runs: %w: set XDG_CACHE_HOME", err)
	}
	return object.Cache{Dir: filepath.Join(folder, "llamatap", "runs"), Bytes: cacheBytes}, nil
}

// fetchFolders replaces each place in object storage among folders of runs by copies of the sealed runs in it.
func fetchFolders(folders []string) (local []string, err error) {
	var fetched []string
	for _, folder := range folders {
		if !object.Is(folder) {
			local = append(local, folder)
			continue
		}
		dirs, err := fetchBelow(folder)
		if err != nil {
			return nil, err
		}
		fetched = append(fetched, dirs...)
	}
	for _, dir := range fetched {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("the runs together are larger than the cache, which has at most %s: give fewer",
				present.Bytes(int64(cacheBytes)))
		}
	}
	return append(local, fetched...), nil
}

// fetchBelow copies the sealed runs in a place in object storage into the user's cache.
func fetchBelow(url string) (dirs []string, err error) {
	from, cache, err := openCached(url)
	if err != nil {
		return nil, err
	}
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	runs, err := from.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		dir, err := run.Fetch(ctx, cache)
		if errors.Is(err, object.ErrNoRun) {
			fmt.Fprintf(present.Err, "llamatap: left out: %s is not sealed\n", run)
			continue
		}
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}
