package host

// join adds what the run directory knows of phases and tokens.
func (a *state) join() error { return nil }
