package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet/internal/cli"
)

// joinToken is the environment variable of --token.
const joinToken = "TRIVET_JOIN_TOKEN"

// configTitle is the first comment of the configuration file that packages install; `make docs` writes the file.
const configTitle = "The configuration of a head: the flags of trivet server with their defaults. To change one, " +
	"remove the # before its line; then: systemctl restart trivet. A name that is unknown is refused, with its " +
	"line in this file: journalctl -u trivet."

// readConfig sets the flags that the command line has not set, from the environment and then from a file.
func readConfig(flags *pflag.FlagSet, file string) error {
	if token := os.Getenv(joinToken); token != "" && !flags.Changed("token") {
		if err := flags.Set("token", token); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	return cli.SetFlags(flags, file, "token")
}
