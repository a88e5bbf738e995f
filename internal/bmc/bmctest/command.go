package bmctest

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trivet-project/trivet/internal/bmc"
)

//go:embed command.pl
var commandScript string

// Exec writes a power command for one test, and returns the Config to use it.
func Exec(t TB, m Machine) bmc.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "bmc-") // short: the path of a unix socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "hooks")
	hooks, err := serveHooks(socket, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(hooks.stop(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	})
	cfg := bmc.Config{Protocol: bmc.Exec, Command: "plug", Commands: dir, Address: "127.0.0.1:80", User: "trivet",
		Password: rand.Text(), Allows: netip.Addr.IsLoopback}
	script := strings.NewReplacer("@PATH@", socket, "@USER@", cfg.User, "@PASSWORD@", cfg.Password).Replace(commandScript)
	if err := WriteProgram(filepath.Join(dir, cfg.Command), script); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// WriteProgram writes a program that can be run at once: nothing is forked meanwhile, as a child that has the file open
// for writing prevents that (ETXTBSY).
func WriteProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}
