package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet"
)

// someFlags are flags of each type.
type someFlags struct {
	*pflag.FlagSet
	api, token string
	dhcp       []string
	drain      time.Duration
	rejoin     bool
	limit      int
	quota      trivet.ByteSize
}

func newSomeFlags() *someFlags {
	f := &someFlags{FlagSet: pflag.NewFlagSet("test", pflag.ContinueOnError)}
	f.StringVar(&f.api, "api", ":7480", "listen address")
	f.StringVar(&f.token, "token", "", "a secret")
	f.StringSliceVar(&f.dhcp, "dhcp", nil, "interfaces")
	f.DurationVar(&f.drain, "drain", 3*time.Second, "how long")
	f.BoolVar(&f.rejoin, "rejoin", false, "whether "+strings.Repeat("or not ", 30))
	f.IntVar(&f.limit, "limit", 64, "how many")
	f.TextVar(&f.quota, "quota", trivet.ByteSize(8<<30), "how much")
	f.String("config", "", "the file")
	f.Bool("help", false, "help")
	return f
}

// values are the values of all flags.
func (f *someFlags) values() map[string]string {
	all := map[string]string{}
	f.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

func TestSetFlags(t *testing.T) {
	for _, c := range []struct {
		text string
		args []string
		want map[string]string // those that are not the default
	}{
		{"", nil, nil},
		{"# nothing\n", nil, nil},
		{"api: 10.0.0.5:7480\ndrain: 5s\nrejoin: true\nlimit: 9\nquota: 16MiB\n", nil, map[string]string{
			"api": "10.0.0.5:7480", "drain": "5s", "rejoin": "true", "limit": "9", "quota": "16MiB"}},
		{"dhcp: [eth1, eth2]\n", nil, map[string]string{"dhcp": "[eth1,eth2]"}},
		{"dhcp:\n  - eth1\n", nil, map[string]string{"dhcp": "[eth1]"}},
		{"dhcp: eth1,eth2\n", nil, map[string]string{"dhcp": "[eth1,eth2]"}},
		{"dhcp: eth1\napi: a\n", []string{"--dhcp=eth7", "--limit=3"}, map[string]string{
			"dhcp": "[eth7]", "api": "a", "limit": "3"}},
		{"dhcp: [eth1]\ndrain: 1m\n", []string{"--dhcp=eth7", "--drain=3s"}, map[string]string{"dhcp": "[eth7]"}},
		{"api: '010'\n", nil, map[string]string{"api": "010"}},
	} {
		f, want := newSomeFlags(), newSomeFlags().values()
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		for name, value := range c.want {
			want[name] = value
		}
		if err := setFlags(f.FlagSet, "c.yaml", []byte(c.text), nil); err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if diff := cmp.Diff(want, f.values()); diff != "" {
			t.Errorf("%q %v:\n%s", c.text, c.args, diff)
		}
	}
}

func TestSetFlagsRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"dhpc: eth1\n", `c.yaml:1:1: there is no setting "dhpc"; did you mean dhcp?`},
		{"api: a\n\nunknown: 1\n", `c.yaml:3:1: there is no setting "unknown"; the known ones are api, dhcp, drain, ` +
			`limit, quota, rejoin, token`},
		{"config: d.yaml\n", `c.yaml:1:1: there is no setting "config"; the known ones are api, dhcp, drain, limit, ` +
			`quota, rejoin, token`},
		{"drain: 3\nlimit: many\nquota: much\nrejoin: perhaps\n",
			"c.yaml:1:1: drain is \"3\": time: missing unit in duration \"3\"\n" +
				"c.yaml:2:1: limit is \"many\": strconv.ParseInt: parsing \"many\": invalid syntax\n" +
				"c.yaml:3:1: quota is \"much\": \"much\" is not a size; write 512MiB, 20GiB or 400GB\n" +
				"c.yaml:4:1: rejoin is \"perhaps\": strconv.ParseBool: parsing \"perhaps\": invalid syntax"},
		{"api: 010\n", `c.yaml:1:1: api is no text; write it in quotes: "8"`},
		{"dhcp: [1]\n", `c.yaml:1:1: dhcp is a list of texts; write each in quotes`},
		{"api: [a]\n", `c.yaml:1:1: api has one value, not a list`},
		{"api: {a: b}\n", `c.yaml:1:1: api has one value, not an object`},
		{"dhcp:\n", `c.yaml:1:1: dhcp has no value; write one, or begin the line with #`},
		{"api: a\napi: b\n", `c.yaml:2:1: mapping key "api" already defined at [1:1]`},
		{"- api\n", `c.yaml:1:1: the file must be one document of lines, NAME: VALUE`},
		{"api: a\n---\napi: b\n", `c.yaml:1:1: the file must be one document of lines, NAME: VALUE`},
		{"token: hunter2\n", `c.yaml:1:1: token is a secret, and others may read this file; chmod o= c.yaml`},
		{"token: \"hunter2\n", `c.yaml:1:8: could not find end character of double-quoted text`},
	} {
		err := setFlags(newSomeFlags().FlagSet, "c.yaml", []byte(c.text), []string{"token"})
		if err == nil || err.Error() != c.want || !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q:\n%v, want\n%s", c.text, err, c.want)
		}
	}
}

// A secret may be in a file that others cannot read. A file has a limit.
func TestSetFlagsFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write := func(text string, mode os.FileMode) {
		if err := errors.Join(os.WriteFile(file, []byte(text), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	f := newSomeFlags()
	write("token: a\n", 0o644)
	if err := SetFlags(f.FlagSet, file, "token"); err == nil || !strings.Contains(err.Error(), "chmod o= "+file) {
		t.Errorf("a secret in a file for all: %v", err)
	}
	write("token: a\n", 0o640)
	if err := SetFlags(f.FlagSet, file, "token"); err != nil || f.token != "a" {
		t.Errorf("%q, %v", f.token, err)
	}
	write(strings.Repeat("#", maxFlagFile+1), 0o600)
	if err := SetFlags(f.FlagSet, file); !errors.Is(err, trivet.ErrTooLarge) {
		t.Errorf("a large file: %v", err)
	}
	if err := SetFlags(f.FlagSet, file+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// The file that is written has all flags but --config and --help, and sets none. Without its comment signs it sets each
// to its default.
func TestFlagFile(t *testing.T) {
	text := FlagFile("A title.", newSomeFlags().FlagSet)
	t.Log(text)
	keys := 0
	var lines []string
	for line := range strings.Lines(text) {
		if len(line) > 121 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
		if !strings.HasPrefix(line, "# ") && strings.HasPrefix(line, "#") {
			line, keys = line[1:], keys+1
		}
		lines = append(lines, line)
	}
	if keys != 7 {
		t.Errorf("%d keys, want 7", keys)
	}
	for _, text := range []string{text, strings.Join(lines, "")} {
		f := newSomeFlags()
		if err := setFlags(f.FlagSet, "c.yaml", []byte(text), nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(newSomeFlags().values(), f.values()); diff != "" {
			t.Error(diff)
		}
	}
}

// Any file sets flags, or results in an ErrInvalid.
func FuzzSetFlags(f *testing.F) {
	f.Add([]byte("api: a\ndhcp: [eth1, eth2]\ndrain: 5s\nrejoin: true\nlimit: 9\nquota: 16MiB\n"))
	f.Add([]byte("dhpc: x\napi: {a: b}\n---\n- b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		err := setFlags(newSomeFlags().FlagSet, "c.yaml", text, []string{"token"})
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Fatalf("%v is no ErrInvalid", err)
		}
	})
}
