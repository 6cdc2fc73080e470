//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pierrec/lz4/v4"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/internal/testenv"
)

// mostMemory is what any input may make a reading command take, in KiB, as the kernel counts it.
const mostMemory = 512 << 10

// nightly are command lines that compute for seconds; outside of a nightly run there are none, and other commands
// read the same files.
func nightly(commands ...[]string) [][]string {
	if !testenv.Nightly() {
		return nil
	}
	return commands
}

// packetOf is one packet of a stream without an index.
func packetOf(name string, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(len(name))), uint32(len(payload)))
	return append(append(head, name...), payload...)
}

// zstdBomb is a frame of blocks of 128 KiB of zeros, all but some of which take 4 bytes.
func zstdBomb(blocks, whole int) []byte {
	const block = 128 << 10
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 7 << 3} // content size of 8 bytes, window of 128 KiB
	frame = binary.LittleEndian.AppendUint64(frame, uint64(blocks*block))
	for i := range blocks {
		head, content := uint32(1<<1|block<<3), 1 // run length
		if i < whole {
			head, content = block<<3, block
		}
		if i == blocks-1 {
			head |= 1
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16))
		frame = append(frame, make([]byte, content)...)
	}
	return frame
}

// lz4Bomb is a frame of 25 MB without its size that stands for 6.3 GB of zeros.
func lz4Bomb(t *testing.T) []byte {
	t.Helper()
	var one bytes.Buffer
	w := lz4.NewWriter(&one)
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const head, end = 7, 4
	frame := one.Bytes()
	block := frame[head : len(frame)-end]
	return append(append(bytes.Clone(frame[:head]), bytes.Repeat(block, 25<<20/len(block))...), 0, 0, 0, 0)
}

// TestBombs: no file makes a command take memory out of proportion, whatever it claims to hold.
func TestBombs(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sparse := func(name string, size int64) {
		t.Helper()
		if err := os.Truncate(put(name, nil), size); err != nil {
			testenv.Beyond(t, "a file system of large files", err.Error())
		}
	}
	zstd, lz := put("zstd.stream", packetOf("l_out-0", zstdBomb(48000, 0))),
		put("lz4.stream", packetOf("l_out-0", lz4Bomb(t)))
	// 60 MiB that stand for 480 MiB: no more than 8 for each
	wide := put("wide.stream", packetOf("l_out-0", zstdBomb(3840, 480)))
	many := put("many.stream", bytes.Repeat(packetOf("x", []byte{1, 2}), 3_000_000))
	dense := put("dense.stream", bytes.Repeat(packetOf("l_out-0", zstdBomb(512, 0)), 400)) // 25 GiB of zeros in 800 KB
	brackets, items := put("brackets.yaml", []byte(strings.Repeat("[", 60000))),
		put("items.yaml", []byte(strings.Repeat("- ", 30000)))
	lists := put("lists.yaml", []byte("a: &a0 [x,x]\n"+func() (s string) {
		for i := range 20 {
			s += fmt.Sprintf("b%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i+1, i, i, i, i, i, i, i,
				i, i)
		}
		return s
	}()))
	for _, name := range []string{"metadata.json", "manifest.json", "tokens.json", "resource.jsonl",
		"activations.stream.idx", "trace.parquet"} {
		run := filepath.Join("sparse-"+name, "run_x")
		put(filepath.Join(run, "activations.stream"), packetOf("l_out-0", make([]byte, 8)))
		sparse(filepath.Join(run, name), 700<<20)
	}
	prompts := put("prompts", nil)
	sparse("prompts", 700<<20)
	model := put("model.gguf", llamatap.DefaultModel)
	var commands [][]string
	read := func(stream string) [][]string {
		return [][]string{{"inspect", stream}, {"inspect", stream, "--stats"},
			{"cat", stream, "--tensor", "*", "--format", "json"}, {"verify", stream},
			{"cat", stream, "--tensor", "l_out-0"}, {"diff", stream, stream},
			{"export", stream, "--to", "npy", "-o", filepath.Join(dir, "npy")}}
	}
	commands = slices.Concat(read(lz), nightly(slices.Concat(read(zstd), read(wide))...), [][]string{{"inspect", many}})
	commands = append(commands, nightly([]string{"cat", many, "--tensor", "x"})...)
	refused := len(commands) // of what follows, each is refused for its content's size
	commands = append(commands, []string{"cat", dense, "--tensor", "l_out-0"})
	commands = append(commands, nightly([]string{"inspect", dense, "--stats"},
		[]string{"export", dense, "--to", "npy", "-o", filepath.Join(dir, "dense")})...)
	refusedEnd := len(commands)
	configured := func(file string) [][]string {
		return [][]string{{"mrm", "validate", "--config", file}, {"mrm", "plan", "--config", file},
			{"bench", "-f", file},
			{"exec", "--tap-config", file, "--", "true"}, {"mrm", "analyze", dir, "--classes", file}}
	}
	commands = slices.Concat(commands, configured(lists), configured("/dev/zero"),
		nightly(slices.Concat(configured(brackets), configured(items))...))
	commands = append(commands, []string{"run", "-m", model, "-f", "/dev/zero", "-n", "1"},
		[]string{"run", "-m", model, "--prompts", prompts, "-n", "1"},
		[]string{"run", "-m", model, "--prompts", "/dev/zero", "-n", "1"},
		[]string{"run", "-m", model, "-p", "a", "--grammar-file", "/dev/zero", "-n", "1"},
		[]string{"run", "-m", "/dev/zero", "-p", "a", "-n", "1"},
		[]string{"bench", "compare", "/dev/zero", "/dev/zero"}, []string{"bench", "measure", "/dev/zero"},
		[]string{"serve", dir, "--token", "@/dev/zero"})
	runs, err := filepath.Glob(filepath.Join(dir, "sparse-*", "run_x"))
	if err != nil {
		t.Fatal(err)
	}
	var readings [][]string
	for _, run := range runs {
		readings = append(readings, []string{"inspect", run}, []string{"verify", run},
			[]string{"resource", "summary", run}, []string{"kv", run}, []string{"memory", run},
			[]string{"cat", run, "--tensor", "l_out-0"}, []string{"analyze", run})
	}
	commands = append(commands, testenv.ByDay(readings, len(readings)/3)...)
	for i, args := range commands {
		cmd := self(args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		_ = cmd.Wait()
		if !hung.Stop() {
			t.Errorf("%q did not end", args)
		}
		if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; used > mostMemory {
			t.Errorf("%q took %d MiB: %s", args, used>>10, said.String())
		}
		if i >= refused && i < refusedEnd && !strings.Contains(said.String(), "content too large for its file") {
			t.Errorf("%q reads it all: %s", args, said.String())
		}
	}
}
