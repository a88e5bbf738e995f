package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The command line wins over the environment, and both over the file. A token of the environment is not in the help.
func TestReadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "dhcp: [eth1]\nname: of-the-file\ntoken: of-the-file\nshared-addresses: [10.0.0.5, 10.1.0.0/16]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  string
		args []string
		want map[string]string
	}{
		{"", nil, map[string]string{"dhcp": "[eth1]", "name": "of-the-file", "token": "of-the-file",
			"shared-addresses": "10.0.0.5/32,10.1.0.0/16", "api": ":7480"}},
		{"of-the-environment", []string{"--name", "n", "--shared-addresses", "10.0.0.6"}, map[string]string{
			"dhcp": "[eth1]", "name": "n", "token": "of-the-environment", "shared-addresses": "10.0.0.6/32"}},
		{"of-the-environment", []string{"--token", "t"}, map[string]string{"token": "t"}},
	} {
		t.Setenv(joinToken, c.env)
		cmd := serverCommand()
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if err := readConfig(cmd.LocalNonPersistentFlags(), file); err != nil {
			t.Error(err)
		}
		for name, want := range c.want {
			if got := cmd.Flag(name).Value.String(); got != want {
				t.Errorf("%s %v: %s is %q, want %q", c.env, c.args, name, got, want)
			}
		}
		if cmd.Flag("token").DefValue != "" {
			t.Error("the token is in the help")
		}
	}
}
