package mrm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

// largestFile bounds a configuration file; a larger one is none.
const largestFile = cli.MaxConfig

// Load reads a configuration file. What is wrong in it is a [*Problems].
func Load(path string) (*Config, error) {
	data, err := cli.ReadFile(path, largestFile)
	if errors.Is(err, cli.ErrTooLarge) {
		return nil, &Problems{File: path, All: []Problem{{Cause: err.Error(),
			Remedy: "give a YAML file of at most 1 MiB"}}}
	}
	if err != nil {
		return nil, &Problems{File: path, All: []Problem{{
			Cause:  cli.Bare(err).Error(),
			Remedy: "give a file with --config; 'llamatap mrm config' prints one with every key",
		}}}
	}
	return Parse(path, data)
}

// Parse reads the text of a configuration file; name is what it is called in errors, and relative paths in it start
// beside it. What is wrong is a [*Problems], which lists all of it at once. No file that is named in it is
// opened.
func Parse(name string, data []byte) (*Config, error) {
	sum := sha256.Sum256(data)
	c := &Config{file: name, sha256: hex.EncodeToString(sum[:]), places: map[string]place{}}
	problems := c.problems()
	body, bad := config.ParseYAML(data)
	switch {
	case len(data) > largestFile:
		problems.add(fmt.Sprintf("%d bytes are more than a configuration has", len(data)),
			"give a YAML file of at most 1 MiB")
	case bad != nil:
		remedy := bad.Remedy
		if remedy == "" {
			remedy = "mend it; 'llamatap mrm config' prints a file with every key"
		}
		problems.addAt(place{bad.Line, bad.Column}, bad.Cause, remedy)
	case body == nil:
		problems.add("the file is empty", "'llamatap mrm config' prints one with every key")
	default:
		if isTrace(body) {
			(&traceReader{Config: c, problems: problems}).read(body)
		} else {
			d := decoder{problems: problems}
			d.structure(body, "", reflect.ValueOf(c).Elem())
		}
		checker{c, problems}.check()
	}
	if err := problems.error(); err != nil {
		return nil, err
	}
	return c, nil
}
