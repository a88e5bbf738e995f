package main

import (
	"os"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet/internal/cli"
)

// setIssue writes why the head does not run to the file of the login message, or removes that where it runs. What fails
// is in the log anyhow.
func setIssue(file string, err error) {
	switch {
	case file == "":
	case err == nil:
		_ = os.Remove(file)
	default:
		_ = renameio.WriteFile(file, []byte(issueText(err)), 0o644, renameio.WithStaticPermissions(0o644))
	}
}

// issueText is a login message. In one a backslash begins a command of agetty(8).
func issueText(err error) string {
	var text strings.Builder
	cli.PrintError(&text, err)
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '\\':
			return '/'
		case r != '\n' && (r < ' ' || r > '~'):
			return '?'
		}
		return r
	}, text.String())
	return "The Trivet head of this host does not run:\n" + plain + "\n"
}
