// Package cli is what operators type. Each command is one file; app.go is what they share, manifest.go and yaml.go read
// what people write, print.go shows records. Commands speak to heads by the client package only.
package cli
