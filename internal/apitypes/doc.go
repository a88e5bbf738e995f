// Package apitypes is what servers and operator commands need of the API's contract beyond the root package: strict
// decoding of records that people write (strict.go, properties.go), merge patches (patch.go), errors and their HTTP
// statuses (problem.go), server-sent events (sse.go) and join tokens (join.go).
package apitypes
