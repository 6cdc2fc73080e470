package bpf

import "github.com/cilium/ebpf/btf"

// Arguments counts what the hook of a tracepoint is handed, its own context included; 0 where the kernel has no
// such hook, or no BTF.
func Arguments(tracepoint string) int {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return 0
	}
	return ArgumentsIn(types, tracepoint)
}

// ArgumentsIn is Arguments in types that were loaded already.
func ArgumentsIn(types *btf.Spec, tracepoint string) int {
	var hook *btf.Typedef
	if types.TypeByName("btf_trace_"+tracepoint, &hook) != nil {
		return 0
	}
	pointer, ok := hook.Type.(*btf.Pointer)
	if !ok {
		return 0
	}
	proto, ok := pointer.Target.(*btf.FuncProto)
	if !ok {
		return 0
	}
	return len(proto.Params)
}
