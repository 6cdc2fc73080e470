package config

import (
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// usual are the settings that --help lists; --help-all lists the others, too.
var usual = map[string]bool{
	"model": true, "prompt": true, "file": true, "predict": true, "ctx-size": true, "threads": true, "gpu-layers": true, "seed": true, "temp": true,
	"prompts": true, "results": true,
}

// Define adds the flags of r, under every name that llama.cpp gives them. Values go into r as they are parsed.
func (r *Run) Define(f *cli.Flags) {
	group := ""
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.section != "" {
			group = strings.ToUpper(o.section[:1]) + o.section[1:]
		}
		flag := &cli.Flag{
			Value: o.form, Pair: o.pair, Default: o.byDef, Help: o.help, Env: o.env, Group: group, More: !usual[o.key],
			Set: func(value string) error { return r.set(o, value) },
		}
		if !flag.More {
			flag.Group = "Generation"
		}
		for _, name := range o.names {
			flag.Names = append(flag.Names, dashed(name))
		}
		for _, name := range o.negative {
			flag.Off = append(flag.Off, dashed(name))
		}
		f.List = append(f.List, flag)
	}
}

// dashed is a flag's name as users write it.
func dashed(name string) string {
	if len(name) > 1 && !shortNames[name] {
		return "--" + name
	}
	return "-" + name
}
