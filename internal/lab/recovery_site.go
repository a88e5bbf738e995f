package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/server"
	"github.com/trivet-project/trivet/internal/wait"
)

// recoverySite is heads that are lost in one way, with machines that are being installed and clients that write.
type recoverySite struct {
	demo     *Demo // of this case only
	name     string
	heads    *headProcesses
	operator *operator
	client   *client.Client
	ledger   ledger
	load     *load
	machines *installing

	survivor  *headProcess      // whose data is used at its address; nil: none
	plan      *recovery.Plan    // nil: nothing may be lost
	copies    []trivet.BlobCopy // of blobs, before the operator imported any again
	cancelled map[string]bool   // provisions, by the operator
}

// newRecoverySite starts the heads, and creates the records.
func newRecoverySite(ctx context.Context, d *Demo, c *recoveryCase) (s *recoverySite, err error) {
	own := *d
	own.Dir = filepath.Join(d.Dir, c.name)
	if own.standby = c.standby; own.standby {
		own.Heads = 2
	}
	s = &recoverySite{demo: &own, name: c.name, cancelled: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := os.MkdirAll(s.path("images"), 0o700); err != nil {
		return s, err
	}
	if s.heads, err = startHeads(ctx, &own); err != nil {
		return s, err
	}
	if err := s.login(ctx); err != nil {
		return s, err
	}
	if err := prepare(ctx, s.client, true); err != nil {
		return s, err
	}
	if s.machines, err = newInstalling(ctx, &own, s.client, &s.ledger); err != nil {
		return s, err
	}
	s.relay()
	return s, s.secure(ctx)
}

func (s *recoverySite) path(name string) string { return filepath.Join(s.demo.Dir, name) }

func (s *recoverySite) status(format string, args ...any) {
	s.demo.status("%s: %s", s.name, fmt.Sprintf(format, args...))
}

// login creates a token for the operator and the clients, which no loss of a head revokes.
func (s *recoverySite) login(ctx context.Context) error {
	program, err := s.demo.program()
	if err != nil {
		return err
	}
	file, err := client.ReadFile(server.AdminFile(s.heads.all[0].dir()))
	if err != nil {
		return err
	}
	s.operator = &operator{program: program, config: s.path("operator.yaml")}
	admin, err := file.Pick("")
	if err == nil {
		err = s.operator.change(func(c *client.Context) { *c = admin })
	}
	if err != nil {
		return err
	}
	token, err := s.operator.run(ctx, "token", "issue", "admin")
	if err == nil {
		err = s.operator.change(func(c *client.Context) { c.Token = strings.TrimSpace(string(token)) })
	}
	if err != nil {
		return err
	}
	return s.reconnect()
}

// reconnect uses the heads that run.
func (s *recoverySite) reconnect() error {
	var urls []string
	for _, n := range s.heads.running() {
		urls = append(urls, n.api())
	}
	if err := s.operator.change(func(c *client.Context) { c.Endpoints = urls }); err != nil {
		return err
	}
	c, err := s.operator.connect()
	if err != nil {
		return err
	}
	if s.heads.client != nil {
		s.heads.client.Close()
	}
	s.client, s.heads.client = c, c
	if s.machines != nil {
		s.machines.client = c
	}
	return nil
}

// relay makes the DHCP relay of the machines send to the heads that run.
func (s *recoverySite) relay() {
	var all []string
	for _, n := range s.heads.running() {
		all = append(all, n.host+":7067")
	}
	s.machines.dhcp.Store(&all)
}

// secure creates the recovery key, and a backup that is proven.
func (s *recoverySite) secure(ctx context.Context) error {
	key, err := s.operator.run(ctx, "backup", "key", "--yes")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("recovery.key"), key, 0o600); err != nil {
		return err
	}
	return s.backUp(ctx)
}

// backUp makes a backup with the contents of blobs, and proves it.
func (s *recoverySite) backUp(ctx context.Context) error {
	var made recovery.Created
	if err := s.operator.read(ctx, &made, "backup", "create", "--to", s.path("backups"), "--blobs"); err != nil {
		return err
	}
	_, err := s.operator.run(ctx, "backup", "verify", filepath.Join(s.path("backups"), made.Name), "--key",
		s.path("recovery.key"), "--temp", s.demo.Dir)
	return err
}

// begin lets clients write and installs machines, until the last ones are being installed. during, unless it is nil, is
// called when half of them have begun.
func (s *recoverySite) begin(ctx context.Context, during func(*recoverySite, context.Context) error) error {
	if !s.demo.standby { // there is never a spare voter
		if problems := s.awaitBlessed(ctx); len(problems) > 0 {
			return fmt.Errorf("before the loss: %s", strings.Join(problems, "; "))
		}
	}
	c, err := s.operator.connect()
	if err != nil {
		return err
	}
	s.load = startLoad(ctx, c, &s.ledger, s.path("images"))
	all := s.machines.machines
	half := (len(all) + 1) / 2
	if err := s.installSome(ctx, all[:half]); err != nil {
		return err
	}
	if during != nil {
		if err := during(s, ctx); err != nil {
			return err
		}
	}
	return s.installSome(ctx, all[half:])
}

func (s *recoverySite) installSome(ctx context.Context, machines []*poweredMachine) error {
	if len(machines) == 0 {
		return nil
	}
	if err := s.machines.install(ctx, machines); err != nil {
		return err
	}
	return s.machines.awaitBusy(ctx, machines)
}

// endLoad stops the clients that write.
func (s *recoverySite) endLoad() error {
	if s.load == nil {
		return nil
	}
	err := s.load.stop()
	s.load = nil
	return err
}

// finish waits until all provisions have ended, and returns what went wrong.
func (s *recoverySite) finish(ctx context.Context) (problems []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		all, _, err := client.Of[trivet.Provision](s.client).List(ctx, client.ListOptions{})
		if err != nil {
			return nil, err
		}
		problems = nil
		open := false
		for _, p := range all {
			open = open || !p.Status.State.Ended()
			if p.Status.State != trivet.ProvisionSucceeded && !s.cancelled[p.Name] {
				problems = append(problems, fmt.Sprintf("provision %s is %s: %s", p.Name, p.Status.State, p.Status.Reason))
			}
		}
		if !open || wait.Sleep(ctx, 200*time.Millisecond) != nil {
			return problems, nil
		}
	}
}

// left returns the records that there are.
func (s *recoverySite) left(ctx context.Context) (map[recordID]int, error) {
	left := map[recordID]int{}
	return left, errors.Join(addLeft[trivet.Template](ctx, s.client, left), addLeft[trivet.Image](ctx, s.client, left),
		addLeft[trivet.Machine](ctx, s.client, left), addLeft[trivet.Provision](ctx, s.client, left))
}

// addLeft adds the records of a kind, with the changes that their labels count.
func addLeft[T any, P client.Pointer[T]](ctx context.Context, c *client.Client, left map[recordID]int) error {
	all, _, err := client.Of[T, P](c).List(ctx, client.ListOptions{})
	for _, r := range all {
		h := P(r).Header()
		changes, _ := strconv.Atoi(h.Labels[countLabel]) // 0 where there is none
		left[recordID{trivet.KindOf(P(r)), h.Name}] = changes
	}
	return err
}

// close ends everything.
func (s *recoverySite) close() error {
	err := s.endLoad()
	if s.machines != nil {
		err = errors.Join(err, s.machines.close())
	}
	if s.heads != nil {
		s.heads.close()
	}
	return err
}
