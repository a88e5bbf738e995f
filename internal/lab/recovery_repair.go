package lab

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// What the operator does, as docs/recovery.md has it.

// undecided is what trivet recover list -o json writes.
type undecided struct {
	Frozen []struct {
		Provision, Machine, Step string
	}
	Unverified []string
}

// recover makes the data directory of a head from what is left, and starts it as the first head.
func (s *recoverySite) recover(ctx context.Context, n *headProcess, from ...string) error {
	args := slices.Concat([]string{"recover", "--data-dir", n.dir(), "--advertise", n.host}, from)
	if err := s.operator.read(ctx, &s.plan, append(args, "--plan")...); err != nil {
		return err
	}
	s.status("the plan: what was written after %s, with revisions from %d, is lost; %d provisions are frozen, "+
		"%d blobs have no content", s.plan.DataTime.Format(time.TimeOnly), s.plan.Revision+1, s.plan.FrozenCount,
		s.plan.BlobsMissing)
	if _, err := s.operator.run(ctx, append(args, "--yes")...); err != nil {
		return err
	}
	n.join = nil
	if err := n.start(ctx); err != nil {
		return err
	}
	s.relay()
	if err := s.reconnect(); err != nil {
		return err
	}
	s.status("%s serves as the first head", n.name)
	return nil
}

// afterwards does the steps of the section "Afterwards".
func (s *recoverySite) afterwards(ctx context.Context) error {
	if err := s.operator.read(ctx, &s.copies, "blob", "check"); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.resolve, s.verify, s.importAgain, s.addHead, s.addHead,
		s.backUp} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// resolve decides about the provisions that are frozen. What is installed by now must not be installed again, and an
// installed system that has not phoned home knows former addresses only.
func (s *recoverySite) resolve(ctx context.Context) error {
	var left undecided
	if err := s.operator.read(ctx, &left, "recover", "list"); err != nil {
		return err
	}
	former := s.survivor != nil // a former address is used
	decided := map[string][]string{}
	for _, f := range left.Frozen {
		decision := "--continue"
		if s.machines.isUp(f.Machine) || f.Step == trivet.StepFirstBoot && !former {
			decision, s.cancelled[f.Provision] = "--cancel", true
		}
		decided[decision] = append(decided[decision], f.Provision)
	}
	for decision, names := range decided {
		if _, err := s.operator.run(ctx, slices.Concat([]string{"recover", "resolve", decision}, names)...); err != nil {
			return err
		}
	}
	s.status("%d provisions are continued, and %d cancelled, whose machines were installed meanwhile",
		len(decided["--continue"]), len(decided["--cancel"]))
	return nil
}

// verify accepts the machines of which it is not known what runs on them: no one needs it any more.
func (s *recoverySite) verify(ctx context.Context) error {
	for accepted := map[string]bool{}; ; {
		var left undecided
		if err := s.operator.read(ctx, &left, "recover", "list"); err != nil {
			return err
		}
		if len(left.Unverified) == 0 {
			s.status("%d machines were unverified and are accepted", len(accepted))
			return nil
		}
		for _, name := range left.Unverified {
			accepted[name] = true
			if _, err := s.operator.run(ctx, "accept", name); err != nil {
				return err
			}
		}
		if err := wait.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// importAgain imports the images again whose contents are missing.
func (s *recoverySite) importAgain(ctx context.Context) error {
	for _, b := range s.plan.MissingBlobs {
		kind, name, _ := strings.Cut(b.UsedBy, "/")
		if kind != "image" {
			continue // it shows in the status
		}
		_, err := s.operator.run(ctx, "image", "import", filepath.Join(s.path("images"), name), "--name", name, "--format",
			"raw", "--replace")
		if err != nil {
			return err
		}
		s.status("image %s, whose content was missing, is imported again", name)
	}
	return nil
}

// joinToken is what the commands that create a token write.
type joinToken struct {
	Token string
	Join  []string
}

// addHead lets another head join.
func (s *recoverySite) addHead(ctx context.Context) error {
	return s.join(ctx, "head", "token")
}

// join starts a head with the token that a command creates.
func (s *recoverySite) join(ctx context.Context, command ...string) error {
	var token joinToken
	if err := s.operator.read(ctx, &token, command...); err != nil {
		return err
	}
	n := s.heads.newHead()
	s.status("%s joins", n.name)
	if err := s.heads.startJoining(ctx, n, token.Token, token.Join...); err != nil {
		return err
	}
	s.relay()
	return s.reconnect()
}
