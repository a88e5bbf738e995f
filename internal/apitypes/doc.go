// Package apitypes is what heads and their clients agree on besides the nouns: how records are read from people (strict.go) and
// patched by programs (patch.go), how errors cross the wire and stay what they were (problem.go), how a feed of events is
// written and read (sse.go), and the shapes of answers (shapes.go).
package apitypes
