package mrm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Target says how tasks of a cluster reach the program, the configuration and the results.
type Target struct {
	Dir      string   // shared folder in which tasks start; the configuration's path and output.dir are read from there
	Config   string   // path of the configuration there
	Program  string   // llamatap; "" is llamatap
	Module   string   // of Slurm: an environment module that is loaded, "" for none
	Image    string   // of a container; Slurm runs it with apptainer, and may do without
	Claim    string   // of Kubernetes: the claim of the volume that Dir lies on
	Mount    string   // of Kubernetes: where the volume is mounted; "" is Dir
	Parallel int      // most tasks at a time; 0: as the cluster decides
	Options  []string // of Slurm: further options of sbatch, such as --partition=long
}

// arrayTasks is the most tasks that a job array gets: one below Slurm's own limit (MaxArraySize, 1001). Each runs
// every so many-th cell.
const arrayTasks = 1000

// ErrTarget occurs when a target lacks something, or has what cannot be written into a script.
var ErrTarget = errors.New("no such job can be written")

func (t *Target) check(needsImage bool) error {
	if needsImage && (t.Image == "" || t.Claim == "") {
		return fmt.Errorf("%w: a pod needs an image and a volume; give --image and --claim", ErrTarget)
	}
	if !path.IsAbs(t.Dir) {
		return fmt.Errorf("%w: the shared folder %q is not absolute; give --dir /path, where every node has it",
			ErrTarget, t.Dir)
	}
	for _, s := range append([]string{t.Dir, t.Config, t.Program, t.Module, t.Image, t.Claim, t.Mount}, t.Options...) {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("%w: %q has a control character; leave it out", ErrTarget, s)
		}
	}
	for _, o := range t.Options {
		if !strings.HasPrefix(o, "-") {
			return fmt.Errorf("%w: %q is not an option of sbatch; write it with its dashes, as in --partition=long",
				ErrTarget, o)
		}
	}
	return nil
}

// ask is what a task is to be given: memory in MiB and time in minutes. Memory is a tenth more than the plan's,
// time twice the estimate of a task's cells and five minutes. What is not known is 0, and left to the cluster.
func (p *Plan) ask(tasks int) (mebibytes, minutes int64) {
	_, memory, _, time := p.limits()
	longest := 0.0
	for _, n := range p.Needs {
		longest = max(longest, n.Time.Value)
	}
	cells := math.Ceil(float64(len(p.Cells)) / float64(tasks))
	if memory.Tag != Unknown {
		mebibytes = int64(math.Ceil(memory.Value * 1.1 / (1 << 20)))
	}
	if time.Tag != Unknown {
		minutes = int64(math.Ceil(longest*cells*2/60)) + 5
	}
	return mebibytes, minutes
}

// shell quotes a word for a shell.
func shell(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:=@%+-]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// WriteSlurm writes a script for sbatch: a job array with a task per cell, of the same program for all. Each task
// has its node to itself, because a neighbour contaminates what is measured.
func (p *Plan) WriteSlurm(out io.Writer, t Target) error {
	if err := t.check(false); err != nil {
		return err
	}
	tasks := min(len(p.Cells), arrayTasks)
	mebibytes, minutes := p.ask(tasks)
	var b strings.Builder
	name := p.Config.Experiment.Name
	fmt.Fprintf(&b, "#!/bin/bash\n# %d cells of the experiment %s, as 'llamatap mrm plan --emit slurm' wrote them "+
		"down. Submit it with sbatch.\n", len(p.Cells), name)
	limit := ""
	if t.Parallel > 0 {
		limit = fmt.Sprintf("%%%d", t.Parallel)
	}
	directives := []string{
		"--job-name=llamatap-" + name, fmt.Sprintf("--array=0-%d%s", tasks-1, limit), "--ntasks=1", "--exclusive",
		fmt.Sprintf("--mem=%dM", mebibytes), "--output=llamatap-" + name + "-%A_%a.log", // 0M: all that the node has
	}
	if minutes > 0 {
		directives = append(directives, fmt.Sprintf("--time=%d", minutes))
	}
	if n := p.Config.Engine.Threads; n > 0 {
		directives = append(directives, fmt.Sprintf("--cpus-per-task=%d", n))
	}
	for _, d := range append(directives, t.Options...) {
		b.WriteString("#SBATCH " + d + "\n")
	}
	b.WriteString("set -eu\ncd " + shell(t.Dir) + "\n")
	if t.Module != "" {
		b.WriteString("module load " + shell(t.Module) + "\n")
	}
	command := shell(cmp.Or(t.Program, "llamatap"))
	if t.Image != "" {
		command = "apptainer exec --bind " + shell(t.Dir) + " " + shell(t.Image) + " " + command
	}
	fmt.Fprintf(&b, "for ((cell = SLURM_ARRAY_TASK_ID; cell < %d; cell += %d)); do\n\t%s mrm run --config %s --cell "+
		"\"$cell\"\ndone\n", len(p.Cells), tasks, command, shell(t.Config))
	_, err := io.WriteString(out, b.String())
	return err
}

// mapping is a mapping of YAML whose keys keep their order. It takes keys and values in turn; a nil value is left out.
func mapping(pairs ...any) (m yaml.MapSlice) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != nil {
			m = append(m, yaml.MapItem{Key: pairs[i], Value: pairs[i+1]})
		}
	}
	return m
}

// WriteK8s writes a Job of Kubernetes: indexed, with a pod per cell, of one image for all, with results on the
// volume of a claim. No two pods share a node.
func (p *Plan) WriteK8s(out io.Writer, t Target) error {
	if err := t.check(true); err != nil {
		return err
	}
	mebibytes, minutes := p.ask(len(p.Cells))
	name := jobName(p.Config.Experiment.Name)
	labels := map[string]string{"app.kubernetes.io/name": "llamatap", "app.kubernetes.io/instance": name}
	parallel := len(p.Cells)
	if t.Parallel > 0 {
		parallel = min(t.Parallel, parallel)
	}
	memory, requests := map[string]string{}, map[string]string{}
	if mebibytes > 0 {
		memory["memory"] = fmt.Sprintf("%dMi", mebibytes)
		requests["memory"] = memory["memory"]
	}
	if n := p.Config.Engine.Threads; n > 0 {
		requests["cpu"] = fmt.Sprint(n)
	}
	var deadline any
	if minutes > 0 {
		deadline = minutes * 60
	}
	var security any // for samples
	if k := p.Config.Collector; slices.ContainsFunc([]string{k.Primary, k.Fallback}, func(name string) bool {
		return name == "perf" || name == "fault"
	}) {
		security = mapping("capabilities", mapping("add", []string{"PERFMON", "SYS_PTRACE"}))
	}
	apart := mapping("podAntiAffinity", mapping("requiredDuringSchedulingIgnoredDuringExecution", []any{
		mapping("labelSelector", mapping("matchLabels", labels), "topologyKey", "kubernetes.io/hostname"),
	}))
	container := mapping(
		"name", "cell", "image", t.Image, "workingDir", t.Dir, "command", []string{cmp.Or(t.Program, "llamatap")},
		// Kubernetes sets and expands the index.
		"args", []string{"mrm", "run", "--config", t.Config, "--cell", "$(JOB_COMPLETION_INDEX)"},
		"resources", mapping("limits", memory, "requests", requests), "securityContext", security,
		"volumeMounts", []any{mapping("mountPath", cmp.Or(t.Mount, t.Dir), "name", "shared")},
	)
	job := mapping("apiVersion", "batch/v1", "kind", "Job", "metadata", mapping("name", name, "labels", labels),
		"spec", mapping(
			"completionMode", "Indexed", "completions", len(p.Cells), "parallelism", parallel,
			"backoffLimitPerIndex", 1, "maxFailedIndexes", len(p.Cells),
			"template", mapping("metadata", mapping("labels", labels), "spec", mapping(
				"restartPolicy", "Never", "activeDeadlineSeconds", deadline, "affinity", apart,
				"containers", []any{container}, "volumes", []any{
					mapping("name", "shared", "persistentVolumeClaim", mapping("claimName", t.Claim)),
				},
			)),
		))
	text, err := yaml.Marshal(job)
	if err != nil {
		return err
	}
	head := fmt.Sprintf("# %d cells of the experiment %s, as 'llamatap mrm plan --emit k8s' wrote them down. Submit "+
		"it with kubectl create -f.\n", len(p.Cells), p.Config.Experiment.Name)
	_, err = io.WriteString(out, head+string(text))
	return err
}

// jobName is a name that Kubernetes takes: lower case, at most 52 bytes, so that pods can be named after it.
func jobName(experiment string) string {
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower("llamatap-"+experiment), "-")
	return strings.Trim(name[:min(len(name), 52)], "-")
}
