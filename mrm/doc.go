// Package mrm plans and runs experiments on how the memory of a model is used: a matrix of models, contexts, cache
// types, prompts and repetitions, each cell of which becomes a sealed run directory with mrm-trace's files, what
// observing it cost, and its class of validity.
//
// An experiment is a YAML file ([Parse], [Load]); [Config.Cells] are its matrix, [NewPlan] what it needs, computed
// before anything runs. It is run by [Experiment.Run], which resumes where an earlier one was killed. docs/MRM.md
// describes its use, docs/MRM_RUN.md the files it leaves.
package mrm
