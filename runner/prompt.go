package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

// maxPromptBytes bounds what is read as a prompt. No context holds as much; it stops a device or the wrong file.
const maxPromptBytes = 64 << 20

// ReadPrompt returns the text that a run continues: -p, or the file without its last newline, or stdin; with
// escapes processed as llama.cpp does. Where llama.cpp replaces invalid UTF-8 silently, it is an error here. The
// error wraps ErrPrompt, and ErrInterrupted when ctx ended while stdin was read.
func ReadPrompt(ctx context.Context, cfg *config.Run, stdin io.Reader) (string, error) {
	text, name := cfg.Prompt, "-p"
	if cfg.PromptFile != "" {
		name = "-f " + cfg.PromptFile
		var err error
		if text, err = readPromptFile(ctx, cfg.PromptFile, stdin); err != nil {
			return "", err
		}
		text = strings.TrimSuffix(text, "\n")
	}
	if cfg.Escape {
		text = unescape(text)
	}
	if i := cli.InvalidUTF8(text); i >= 0 {
		return "", fmt.Errorf("%w %s is not valid UTF-8 at byte %d: convert it to UTF-8 first, with iconv for example",
			ErrPrompt, name, i)
	}
	return text, nil
}

func readPromptFile(ctx context.Context, path string, stdin io.Reader) (string, error) {
	if path == "-" {
		if stdin == nil {
			return "", fmt.Errorf("%w -f -: there is no stdin", ErrPrompt)
		}
		return readStdin(ctx, stdin)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w -f %s: no such file: check the path, or give the text with -p", ErrPrompt, path)
	case err != nil:
		return "", fmt.Errorf("%w -f %s: %w", ErrPrompt, path, cli.Bare(err))
	case info.IsDir():
		return "", fmt.Errorf("%w -f %s is a folder: give a file in it", ErrPrompt, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w -f %s: %w", ErrPrompt, path, cli.Bare(err))
	}
	defer file.Close()
	return readLimited(file, path)
}

func readLimited(r io.Reader, name string) (string, error) {
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(r, maxPromptBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%w -f %s: read: %w", ErrPrompt, name, cli.Bare(err))
	case n > maxPromptBytes:
		return "", fmt.Errorf("%w -f %s is larger than %d MiB: no context holds it; give a shorter text", ErrPrompt,
			name, maxPromptBytes>>20)
	}
	return text.String(), nil
}

// readStdin reads until the end of stdin or of ctx. In the second case the reading goroutine is left to the end of
// the process.
func readStdin(ctx context.Context, stdin io.Reader) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := readLimited(stdin, "-")
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return "", fmt.Errorf("%w while reading the prompt from stdin: %w", ErrInterrupted, context.Cause(ctx))
	}
}

// unescape processes the escapes that llama.cpp's -e does: \n \r \t \' \" \\ \xHH. Others stay as they are.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 't':
			out.WriteByte('\t')
		case '\'', '"', '\\':
			out.WriteByte(s[i])
		case 'x':
			if b, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8); err == nil && i+2 < len(s) {
				out.WriteByte(byte(b))
				i += 2
				continue
			}
			fallthrough
		default:
			out.WriteString(s[i-1 : i+1])
		}
	}
	return out.String()
}
