package object

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/minio/minio-go/v7"
)

// Runs returns the places of the runs in this one and in the folders in it, newest first by their names; of a run's
// place that place. A run is a folder with a run's name, or one with a manifest.
func (s *Store) Runs(ctx context.Context) ([]*Store, error) {
	if s.prefix != "" {
		if files, _, err := s.list(ctx, false); err != nil || hasManifest(files) {
			return []*Store{s}, err
		}
	}
	runs, others, err := s.runsIn(ctx)
	for _, below := range others {
		if err != nil {
			break
		}
		var in []*Store
		in, _, err = below.runsIn(ctx)
		runs = append(runs, in...)
	}
	slices.SortFunc(runs, func(a, b *Store) int {
		return cmp.Or(cmp.Compare(path.Base(b.url), path.Base(a.url)), cmp.Compare(a.url, b.url))
	})
	return runs, err
}

// runsIn returns the runs that lie in this place itself, and its other folders.
func (s *Store) runsIn(ctx context.Context) (runs, others []*Store, err error) {
	_, folders, err := s.list(ctx, false)
	for _, name := range folders {
		below := s.Below(name)
		isRun := rundir.IsRunName(name)
		if !isRun && err == nil {
			var files []rundir.File
			files, _, err = below.list(ctx, false)
			isRun = hasManifest(files)
		}
		if isRun {
			runs = append(runs, below)
		} else {
			others = append(others, below)
		}
	}
	return runs, others, err
}

func hasManifest(files []rundir.File) bool {
	return slices.ContainsFunc(files, func(f rundir.File) bool { return f.Name == rundir.ManifestName })
}

// Contents lists names and sizes of the files that the store has of a run, those of its segments included, and reads
// its metadata; nil: it has no manifest, for it is being copied, or that was cut off.
func (s *Store) Contents(ctx context.Context) ([]rundir.File, *rundir.Metadata, error) {
	files, _, err := s.list(ctx, true)
	if err != nil || !hasManifest(files) {
		return files, nil, err
	}
	text, err := s.document(ctx, rundir.ManifestName)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := rundir.ParseManifest(text)
	if err == nil {
		text, err = s.document(ctx, rundir.MetadataName)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.url, err)
	}
	sum := sumText(text)
	if !slices.ContainsFunc(manifest.Files, func(f rundir.File) bool {
		return f.Name == rundir.MetadataName && f.SHA256 == sum
	}) {
		return nil, nil, fmt.Errorf("%s/%s: %w: push the run again from where it was recorded", s.url,
			rundir.MetadataName, rundir.ErrChanged)
	}
	m, err := rundir.ParseMetadata(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.url, err)
	}
	return files, &m, nil
}

// document reads a small file of a run.
func (s *Store) document(ctx context.Context, name string) ([]byte, error) {
	var text bytes.Buffer
	err := s.insist(ctx, func() error {
		text.Reset()
		size, _, err := s.sumOf(ctx, path.Join(s.prefix, name), &text, rundir.MaxDocument)
		if missing(err) {
			return permanent{fmt.Errorf("%s/%s: %w: push the run again", s.url, name, err)}
		}
		if err == nil && size > rundir.MaxDocument {
			return permanent{fmt.Errorf("%s/%s: %w", s.url, name, rundir.ErrTooLarge)}
		}
		return err
	})
	return text.Bytes(), err
}

// list lists what is in the place: files with their sizes, and folders, or, with deep, the files in these.
func (s *Store) list(ctx context.Context, deep bool) (files []rundir.File, folders []string, err error) {
	prefix := s.prefix
	if prefix != "" {
		prefix += "/"
	}
	err = s.insist(ctx, func() error {
		files, folders = nil, nil
		ctx, stop := context.WithCancel(ctx)
		defer stop() // ends the listing's goroutine
		for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: deep}) {
			if o.Err != nil {
				return o.Err
			}
			name := strings.TrimPrefix(o.Key, prefix)
			if folder, ok := strings.CutSuffix(name, "/"); ok {
				if folder != "" {
					folders = append(folders, folder)
				}
			} else {
				files = append(files, rundir.File{Name: name, Size: o.Size})
			}
		}
		return nil
	})
	return files, folders, err
}
