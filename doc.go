// Package trivet defines the records of the Trivet control plane, their validation, the types of its HTTP API and the
// errors that callers distinguish. It does no I/O and imports the standard library only.
//
// A record has kind, name, labels, spec (the desired state, written by people), status (the observed state, written
// by Trivet) and a store revision; records of some kinds belong to a project ([ScopeProject]). Read the kinds in this
// order: [Machine], [Template], [Provision], [Workflow]; then [Network] and [Address]; then [Image] and [Platform].
// [Kinds] lists them all. The API of agents is [Hello], [Grant], [Sync]; that of everyone else begins at [List] and is
// implemented by the client package.
package trivet
