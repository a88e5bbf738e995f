package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is a cluster of heads on our side, each a process at an address of its own.
type site struct {
	b      *bench
	dir    string
	heads  []*member
	admin  client.Config
	client *client.Client // of the administrator
}

// member is a head of a site.
type member struct {
	*program // of its last start
	name     string
	host     string
	dir      string
}

// The sites' addresses, beside the one that a head alone has.
var (
	oneHost    = []string{"10.16.1.1"}
	threeHosts = []string{"10.16.3.1", "10.16.3.2", "10.16.3.3"}
)

// startSite starts a head at each address, on new data directories, and returns when all of them are members.
func (b *bench) startSite(name string, hosts []string) (s *site, err error) {
	s = &site{b: b, dir: filepath.Join(b.dir, name)}
	for i, host := range hosts {
		m := &member{name: fmt.Sprint("head", i), host: host, dir: filepath.Join(s.dir, fmt.Sprint("head", i))}
		s.heads = append(s.heads, m)
		s.admin.Endpoints = append(s.admin.Endpoints, testhead.APIURL(host))
		if err := s.grow(m); err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if s.client, err = s.login(0); err != nil {
		s.close()
	}
	return s, err
}

// grow starts a head for the first time and waits until it is a member.
func (s *site) grow(m *member) error {
	if err := s.address("add", m.host); err != nil {
		return err
	}
	if m == s.heads[0] {
		if err := s.start(m); err != nil {
			return err
		}
		admin, err := adminOf(m.program, m.dir)
		s.admin.Trust, s.admin.Token, s.admin.UserAgent = admin.Trust, admin.Token, admin.UserAgent
		return err
	}
	c, err := s.login(0)
	if err != nil {
		return err
	}
	defer c.Close()
	token, _, err := c.IssueJoin(s.b.ctx, trivet.RoleVoter, 0)
	if err != nil {
		return err
	}
	if err := s.start(m, "TRIVET_JOIN_TOKEN="+token); err != nil {
		return err
	}
	return s.await(m.name+" is a member", func() bool {
		h, err := client.Of[trivet.Head](c).Get(s.b.ctx, m.name)
		return err == nil && h.Status.State == trivet.HeadMember
	})
}

// login returns a client of all heads that tries the i-th first.
func (s *site) login(i int) (*client.Client, error) {
	cfg := s.admin
	cfg.Endpoints = slices.Concat(cfg.Endpoints[i:], cfg.Endpoints[:i])
	return client.New(cfg)
}

// start runs a head on its directory, and returns when it is ready.
func (s *site) start(m *member, env ...string) (err error) {
	args := []string{"server", "--data-dir", m.dir, "--log-level", "warn", "--tftp", "",
		"--shared-addresses", ours.client + "/32", // all agents and clients have this one
		"--advertise", m.host, "--api", m.host + ":7480", "--boot", m.host + ":7481"}
	if m != s.heads[0] {
		args = append(args, "--join", testhead.APIURL(s.heads[0].host))
	}
	if m.program, err = s.b.startWith(ours, env, s.b.binary, args...); err != nil {
		return err
	}
	return m.await(func() bool { return testhead.Ready(testhead.APIURL(m.host)) })
}

func (s *site) await(what string, so func() bool) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if so() {
			return nil
		}
	}
	return errors.New(what + ": not within a minute")
}

// whole returns when all heads are members.
func (s *site) whole() error {
	return s.await("all heads are members", func() bool {
		c, err := s.client.Cluster(s.b.ctx)
		return err == nil && !slices.ContainsFunc(c.Heads, func(h trivet.HeadView) bool {
			return h.State != "member" && h.State != "leader"
		})
	})
}

// leader returns the head whose member leads.
func (s *site) leader() (leader *member, err error) {
	err = s.await("a head leads", func() bool {
		c, err := s.client.Cluster(s.b.ctx)
		if err != nil {
			return false
		}
		for _, m := range s.heads {
			leads := func(h trivet.HeadView) bool { return h.Name == m.name && h.State == "leader" }
			if slices.ContainsFunc(c.Heads, leads) {
				leader = m
			}
		}
		return leader != nil
	})
	return leader, err
}

// usage is the resources that programs have used.
type usage struct {
	memory []int64 // resident, in bytes; of each
	cpu    time.Duration
}

// usage returns the resources that the running heads have used.
func (s *site) usage() (u usage, err error) {
	for _, m := range s.heads {
		if m.Ended() {
			continue
		}
		memory, errMemory := m.Resident()
		cpu, errCPU := m.CPU()
		u.memory, u.cpu = append(u.memory, memory), u.cpu+cpu
		err = errors.Join(err, errMemory, errCPU)
	}
	return u, err
}

// sum is the memory of all together.
func (u usage) sum() (bytes int64) {
	for _, m := range u.memory {
		bytes += m
	}
	return bytes
}

// address adds one to the servers' end of the network, or deletes it.
func (s *site) address(verb, host string) error {
	_, err := s.b.output(nil, "ip", "-n", ours.namespace, "addr", verb, host+"/12", "dev", "eth0")
	return err
}

// close ends the heads and removes their data.
func (s *site) close() {
	if s.client != nil {
		s.client.Close()
	}
	for _, m := range s.heads {
		if m.program != nil {
			m.stop()
		}
		_ = s.address("del", m.host) // it is not there where the start failed
	}
	_ = os.RemoveAll(s.dir)
}
