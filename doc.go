// Package trivet holds the nouns of the Trivet control plane: the records that people write and that Trivet keeps, what
// makes each valid, and the errors that callers tell apart. It does no I/O and imports the standard library only.
//
// A record has kind, name, labels, spec (what is wanted, written by people), status (what is, written by Trivet) and a
// store revision. Read the nouns in this order: [Machine], [Template], [Provision], [Workflow]; then [Network] and
// [Address]; then [Image] and [Platform]. The agents' door is [Hello], [Grant], [Sync].
package trivet
