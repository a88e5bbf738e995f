// Package cli implements the operator commands. Each command is one file; app.go is shared, manifest.go and yaml.go
// read manifests, print.go prints records. Commands use the client package only.
package cli
