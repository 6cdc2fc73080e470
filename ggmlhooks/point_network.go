package ggmlhooks

// findNetwork finds the points of the feed-forward network.
func (l *pointLayer) findNetwork() {
	if router, ok := l.products["ffn_gate_inp"]; ok {
		l.findExperts(router)
		return
	}
	down, ok := l.products["ffn_down"]
	if !ok {
		return
	}
	l.exclude("the feed-forward network has no experts", PointRouterLogits, PointExpertWeights, PointExpertIndices)
	l.mlpIn, l.mlpOut = l.reads("ffn_up", "ffn_gate"), l.output(down)
	l.sites[PointMLPIn].setNode(l.mlpIn)
	l.sites[PointMLPOut].setNode(l.mlpOut)
	act := l.source(down, 1)
	if act == none {
		return
	}
	l.sites[PointMLPAct].setNode(act)
	n := &l.g.Nodes[act]
	if gluOps[n.Op] {
		_, split := n.SrcAt(1)
		switch pre := l.source(act, 0); {
		case pre == none:
		case split:
			l.sites[PointMLPPre].setNode(pre)
			l.sites[PointMLPPreLinear].setNode(l.source(act, 1))
		default: // one tensor holds both
			first, second := PointMLPPre, PointMLPPreLinear
			if n.OpParams[1] != 0 {
				first, second = second, first
			}
			l.sites[first].from(pre, "first half of each row")
			l.sites[second].from(pre, "second half of each row")
		}
		return
	}
	for k := range 2 { // activation and product are two nodes
		if unary := l.source(act, k); n.Op == "MUL" && unary != none && unaryOps[l.g.Nodes[unary].Op] {
			l.sites[PointMLPPre].setNode(l.source(unary, 0))
			l.sites[PointMLPPreLinear].setNode(l.source(act, 1-k))
			return
		}
	}
	if relu := l.source(act, 0); n.Op == "SQR" && relu != none && l.g.Nodes[relu].Op == "RELU" {
		act, n = relu, &l.g.Nodes[relu]
	}
	if unaryOps[n.Op] {
		l.sites[PointMLPPre].setNode(l.source(act, 0))
		l.exclude("the feed-forward network has no gate", PointMLPPreLinear)
	}
}

// Activation functions, by ggml's names: of one tensor, and of one that is multiplied with another.
var (
	unaryOps = map[string]bool{"SILU": true, "GELU": true, "GELU_QUICK": true, "GELU_ERF": true, "RELU": true,
		"TANH": true, "SIGMOID": true, "ELU": true, "SOFTPLUS": true}
	gluOps = map[string]bool{"SWIGLU": true, "GEGLU": true, "REGLU": true, "GEGLU_ERF": true, "GEGLU_QUICK": true}
)

// findExperts finds the points of a mixture of experts.
func (l *pointLayer) findExperts(router int) {
	l.exclude("each expert has neurons of its own", PointMLPPre, PointMLPPreLinear, PointMLPAct)
	l.mlpIn = l.source(router, 1)
	l.sites[PointMLPIn].setNode(l.mlpIn)
	l.sites[PointRouterLogits].setNode(l.output(router))
	down, ok := l.products["ffn_down_exps"]
	if !ok {
		return
	}
	l.mlpOut = l.output(down)
	l.sites[PointExpertIndices].setNode(l.source(down, 2))
	for _, r := range l.readers[l.mlpOut] {
		n := &l.g.Nodes[r]
		if n.Op != "MUL" || len(n.Src) < 2 {
			continue
		}
		for k := range 2 {
			if l.source(int(r), 1-k) == l.mlpOut {
				l.sites[PointExpertWeights].setNode(l.source(int(r), k))
			}
		}
	}
}

// findContributions finds what attention and the feed-forward network write, and what they add to the stream.
func (l *pointLayer) findContributions(parallel bool) {
	if parallel {
		// Two branches are summed before or after they meet the stream: what one adds is what it writes.
		if l.attention && l.summed(l.mixOut) {
			l.sites[PointAttnOutPost].setNode(l.mixOut)
		}
		if l.sites[PointMLPOut].How == PointServed && l.summed(l.mlpOut) {
			l.sites[PointMLPOutPost].setNode(l.mlpOut)
		}
		return
	}
	if l.attention && l.mix.sum != none && l.allRows(l.beforeNorm(l.mix.branch, l.prefix)) == l.mixOut {
		l.sites[PointAttnOutPost].setNode(l.mix.branch)
	}
	if l.mlp.sum == none {
		return
	}
	before := l.allRows(l.beforeNorm(l.mlp.branch, l.prefix))
	if _, mixture := l.products["ffn_gate_inp"]; mixture {
		l.sites[PointMLPOut].setNode(before)
		l.sites[PointMLPOutPost].setNode(l.mlp.branch)
	} else if before == l.mlpOut {
		l.sites[PointMLPOutPost].setNode(l.mlp.branch)
	}
}
