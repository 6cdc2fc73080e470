package mrm

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

const small = "experiment: {name: My.Exp_1, repetitions: 2}\nengine: {n_ctx: [256, 512], threads: 4}\nworkload: " +
	"{prompts: [a, b], max_tokens: 8}\n"

func TestWriteSlurm(t *testing.T) {
	p := planned(t, small)
	var b bytes.Buffer
	target := Target{Dir: "/shared/my runs", Config: "e.yaml", Module: "llamatap/1", Parallel: 3,
		Options: []string{"--partition=long"}}
	if err := p.WriteSlurm(&b, target); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"#!/bin/bash\n", "#SBATCH --job-name=llamatap-My.Exp_1\n", "#SBATCH --array=0-7%3\n", "#SBATCH --exclusive\n",
		"set -eu\ncd '/shared/my runs'\n",
		"#SBATCH --cpus-per-task=4\n", "#SBATCH --partition=long\n", "module load llamatap/1\n", "cell < 8; cell += 8",
		`llamatap mrm run --config e.yaml --cell "$cell"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if out, err := exec.Command("bash", "-n", "-c", b.String()).CombinedOutput(); err != nil {
		t.Errorf("bash: %v: %s", err, out)
	}
	b.Reset()
	target.Image, target.Module = "/images/it's.sif", ""
	if err := p.WriteSlurm(&b, target); err != nil ||
		!strings.Contains(b.String(),
			`apptainer exec --bind '/shared/my runs' '/images/it'\''s.sif' llamatap mrm run`) {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, wrong := range []Target{{}, {Dir: "rel"}, {Dir: "/a\nb"}, {Dir: "/a", Options: []string{"rm"}}} {
		if err := p.WriteSlurm(&b, wrong); !errors.Is(err, ErrTarget) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestArrayIsCut: more cells than a job array has tasks are shared out, each exactly once.
func TestArrayIsCut(t *testing.T) {
	p := planned(t, "experiment: {repetitions: 2345}\nworkload: {prompts: a}\n")
	var b bytes.Buffer
	if err := p.WriteSlurm(&b, Target{Dir: "/", Config: "e.yaml", Program: "echo"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "--array=0-999\n") {
		t.Fatal(b.String())
	}
	ran := map[string]int{}
	for _, task := range []string{"0", "344", "345", "999"} {
		cmd := exec.Command("bash", "-c", b.String())
		cmd.Env = append(cmd.Environ(), "SLURM_ARRAY_TASK_ID="+task)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			ran[line]++
		}
	}
	if len(ran) != 3+3+2+2 || ran["mrm run --config e.yaml --cell 2344"] != 1 ||
		ran["mrm run --config e.yaml --cell 1999"] != 1 {
		t.Errorf("%v", ran)
	}
}

// TestWriteK8s looks at what the manifest says; that it is one, by Kubernetes' own schemas, package oracle shows.
func TestWriteK8s(t *testing.T) {
	p := planned(t, small+"collector: {primary: perf, fallback: fault}\n")
	var b bytes.Buffer
	target := Target{Dir: "/shared", Config: "e.yaml", Image: "registry/llamatap:1", Claim: "runs", Parallel: 3}
	if err := p.WriteK8s(&b, target); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: llamatap-my-exp-1\n", "completions: 8\n", "parallelism: 3\n",
		"completionMode: Indexed\n", "$(JOB_COMPLETION_INDEX)", "claimName: runs", "PERFMON"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, wrong := range []Target{{Dir: "/s"}, {Dir: "/s", Image: "i"}, {Image: "i", Claim: "c"}} {
		if err := p.WriteK8s(&b, wrong); !errors.Is(err, ErrTarget) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
