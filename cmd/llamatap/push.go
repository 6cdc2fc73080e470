package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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
		Text: `Copies the files of a sealed run to s3://BUCKET/PREFIX/RUN_ID, reads each back and compares it with the SHA-256 of
the run's manifest. The manifest is copied last: a run that has one there is whole. What is there already is only compared,
so a push that was cut off is repeated. Commands that read a run take the URL that is printed.

Endpoint, region and credentials are those of AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, or of ~/.aws/credentials; docs/RUN_DIRECTORY.md has the parameters of the URL.

  llamatap push 8c1f s3://runs/server-1
  llamatap inspect s3://runs/server-1/run_20261122_113205_8c1f
`,
		Define: func(f *cli.Flags) func([]string) error {
			retry := time.Minute
			f.Add("--retry TIME", &retry, "how long a store that does not answer is tried again, such as 30s or 1h")
			return func(args []string) error {
				dir, err := resolveRun(args[0])
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
				ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// fetchRun copies a run from object storage into the user's cache, and returns the copy.
func fetchRun(url string) (string, error) {
	from, err := openStore(url)
	if err != nil {
		return "", err
	}
	from.Patience = cachePatience
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache of runs: %w: set XDG_CACHE_HOME", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return from.Fetch(ctx, object.Cache{Dir: filepath.Join(folder, "llamatap", "runs"), Bytes: cacheBytes})
}
