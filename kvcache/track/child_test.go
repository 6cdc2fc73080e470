//go:build llama && linux

package track

import (
	"bufio"
	stdcontext "context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"golang.org/x/sys/unix"
)

// childVariable makes this test program the model's process: it holds an order as JSON.
const childVariable = "LLAMATAP_TEST_KV_ORDER"

// order is what the model's process shall do.
type order struct {
	Model     string
	Sequences int
	Size      int
	Micro     int
	Unified   bool
	NoFlash   bool
	TypeK     string
	Full      bool // windows are kept in caches of full size
	Steps     int
	Seed      uint64
	Prompt    int  // tokens; then Steps single ones are decoded, and nothing else happens
	Warm      bool // a decode that is thrown away comes first
	Folder    string
}

// step is what the model's process says after each of its steps: what llama.cpp says of the positions of every
// sequence.
type step struct {
	NS   int64 // CLOCK_MONOTONIC, after the step and before the next
	What string
	Low  []int32
	High []int32
	// Loaded are the sequences whose cells a state brought.
	Loaded []bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		tap.Detach()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(text string) error {
	runtime.LockOSThread()
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if err := llama.Init(); err != nil {
		return err
	}
	weights := llama.DefaultModelParams()
	weights.Plain = true // llama.cpp's AMX kernel reads past the weights of recurrent models: its issue 20824
	m, err := llama.LoadModel(stdcontext.Background(), o.Model, weights)
	if err != nil {
		return err
	}
	p := llama.DefaultContextParams()
	p.Threads, p.BatchThreads, p.Size, p.Sequences, p.Unified = 1, 1, o.Size, o.Sequences, o.Unified
	p.Batch, p.MicroBatch, p.SlidingFull = 64, o.Micro, o.Full
	p.FlashAttention = llama.FlashAttentionOn
	if o.NoFlash {
		p.FlashAttention = llama.FlashAttentionOff
	}
	if o.TypeK != "" {
		if p.TypeK, err = llama.ParseCacheType(o.TypeK); err != nil {
			return err
		}
	}
	x, err := m.NewContext(p)
	if err != nil {
		return err
	}
	w := &walker{order: o, x: x, m: x.Memory(), rand: rand.New(rand.NewPCG(o.Seed, 1)),
		next: make([]int32, o.Sequences), loaded: make([]bool, o.Sequences)}
	if err := w.walk(); err != nil {
		return err
	}
	x.Close()
	return m.Close()
}

// mono is CLOCK_MONOTONIC.
func mono() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// walker does random things to a context.
type walker struct {
	order
	x      *llama.Context
	m      llama.Memory
	rand   *rand.Rand
	next   []int32 // position that each sequence goes on at
	loaded []bool
	saved  []string
}

func (w *walker) say(what string) {
	s := step{NS: mono(), What: what, Loaded: w.loaded}
	for seq := range llama.Seq(w.Sequences) {
		low, high := w.m.Range(seq)
		s.Low, s.High = append(s.Low, int32(low)), append(s.High, int32(high))
		w.next[seq] = int32(high) + 1
	}
	text, _ := json.Marshal(s)
	fmt.Println(string(text))
}

func (w *walker) walk() error {
	if w.Warm {
		if err := w.decode([]int{0}, 2, false); err != nil {
			return err
		}
		w.m.Clear(true)
		w.say("warm-up")
	}
	if w.Prompt > 0 {
		for i := 0; i <= w.Steps; i++ {
			n := 1
			if i == 0 {
				n = w.Prompt
			}
			if err := w.decode([]int{0}, n, true); err != nil {
				return err
			}
			w.say("decode")
		}
		return nil
	}
	for range w.Steps {
		what, err := w.random()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if what != "" {
			w.say(what)
		}
	}
	return nil
}

// decode decodes n further tokens of each of some sequences.
func (w *walker) decode(seqs []int, n int, look bool) error {
	b, err := llama.NewBatch(64, w.Sequences)
	if err != nil {
		return err
	}
	defer b.Close()
	for i := range n {
		for _, seq := range seqs {
			if err := b.Add(llama.Token(5+w.rand.IntN(100)), llama.Pos(w.next[seq]+int32(i)), i == n-1,
				llama.Seq(seq)); err != nil {
				return err
			}
		}
	}
	if err := w.x.Decode(b); err != nil {
		return err
	}
	if look {
		_, err = w.x.Logits(b.Len() - 1)
	}
	return err
}

// run starts the model's process and hands what its tap reports to the sink. It returns what the process said.
func run(t *testing.T, o order, sink ggmlhooks.Sink, machine collect.Machine) []step {
	t.Helper()
	region, err := collect.NewRegion(collect.Options{Start: collect.Wish{Off: true, Machine: machine},
		MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	text, _ := json.Marshal(o)
	cmd := exec.Command(os.Args[0])
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.ExtraFiles = []*os.File{region.File(), region.Life()}
	cmd.Env = append(os.Environ(), childVariable+"="+string(text), collect.FDVariable+"=3,4")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reader := collect.NewReader(region, sink)
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: %v: %s", text, err, log.String())
			}
			running = false
		default:
			reader.Sleep(time.Millisecond)
		}
		if _, err := reader.Drain(); err != nil {
			cmd.Process.Kill()
			t.Fatal(err)
		}
	}
	if losses := region.Stats().Losses; len(losses) != 0 {
		t.Fatalf("lost: %+v", losses)
	}
	var steps []step
	for lines := bufio.NewScanner(strings.NewReader(out.String())); lines.Scan(); {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		steps = append(steps, s)
	}
	return steps
}
