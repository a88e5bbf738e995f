package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is several heads of one cluster.
type site struct {
	program   string // trivet
	dir       string
	fabric    *fabric
	history   *history
	heads     []*head
	quota     string // of the store; "": the default
	heartbeat string // interval of the store's heartbeats; "": the default
	lossy     bool   // all heads have disks that lose what was not synced
	large     bool   // no head has a small disk
	disk      *disk  // of the last head, otherwise
	token     string // the administrator's
	trust     string
}

// plan describes a site and its load.
type plan struct {
	program   string // of the heads
	heads     int
	lossy     bool   // their disks lose at a power cut what was not synced
	large     bool   // none has a small disk
	quota     string // of the store; "": the default
	heartbeat string // interval of the store's heartbeats; "": the default
	load      size
}

// newSite returns a site without a head.
func newSite(dir string, p plan, h *history) (*site, error) {
	f, err := newFabric()
	if err != nil {
		return nil, err
	}
	s := &site{program: p.program, lossy: p.lossy, large: p.large, quota: p.quota, heartbeat: p.heartbeat,
		dir: dir, fabric: f, history: h}
	return s, testhead.WriteBootFiles(s.path("ipxe"))
}

// growTo starts heads until there are n members.
func (s *site) growTo(ctx context.Context, n int) error {
	for len(s.heads) < n {
		if len(s.heads) == n-1 && s.disk == nil && !s.lossy && !s.large {
			var err error
			if s.disk, err = newDisk(s.path("disk"), s.path(fmt.Sprint("data", n-1))); err != nil {
				return err
			}
		}
		if err := s.grow(ctx); err != nil {
			return fmt.Errorf("head %d: %w", len(s.heads)-1, err)
		}
	}
	return nil
}

func (s *site) grow(ctx context.Context) error {
	n := len(s.heads)
	h := &head{site: s, port: fmt.Sprint("h", n), address: netip.AddrFrom4([4]byte{10, 99, 0, byte(11 + n)}),
		data: s.path(fmt.Sprint("data", n))}
	if err := s.fabric.plug(h.port, h.address); err != nil {
		return err
	}
	if s.lossy {
		var err error
		if h.lossy, err = lossyDisk(s.path(h.port+".disk"), h.data); err != nil {
			return err
		}
	}
	token := ""
	if n > 0 {
		var err error
		if token, err = s.trivet(ctx, "head", "token"); err != nil {
			return err
		}
	}
	if err := h.start(token); err != nil {
		return err
	}
	s.heads = append(s.heads, h)
	if err := h.ready(ctx); err != nil {
		return err
	}
	if n == 0 {
		return testhead.Eventually(ctx, s.readAdmin)
	}
	return s.awaitMembers(ctx, n+1)
}

func (s *site) readAdmin() error {
	c, err := testhead.Admin(s.adminFile())
	s.token, s.trust = c.Token, c.Trust
	return err
}

func (s *site) adminFile() string { return testhead.AdminFile(s.heads[0].data) }

// trivet runs an operator command and returns its standard output.
func (s *site) trivet(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := testhead.CLI(ctx, testhead.Command("", s.program, args...), s.adminFile())
	return strings.TrimSpace(r.Stdout), err
}

// awaitMembers waits until n heads are members.
func (s *site) awaitMembers(ctx context.Context, n int) error {
	c, err := s.client(0, s.heads...)
	if err != nil {
		return err
	}
	defer c.Close()
	return testhead.Eventually(ctx, func() error {
		list, _, err := client.Of[trivet.Head](c).List(ctx, client.ListOptions{})
		members := 0
		for _, h := range list {
			if h.Status.State == trivet.HeadMember {
				members++
			}
		}
		if err == nil && members < n {
			err = fmt.Errorf("%d of %d heads are members", members, n)
		}
		return err
	})
}

// client returns a client of some heads as the administrator.
func (s *site) client(wait time.Duration, heads ...*head) (*client.Client, error) {
	var urls []string
	for _, h := range heads {
		urls = append(urls, h.api())
	}
	return client.New(client.Config{Endpoints: urls, Trust: s.trust, Token: s.token, RetryTimeout: wait,
		UserAgent: "trivet-chaos"})
}

func (s *site) endpoints() (urls []string) {
	for _, h := range s.heads {
		urls = append(urls, h.api())
	}
	return urls
}

func (s *site) addresses() (all []netip.Addr) {
	for _, h := range s.heads {
		all = append(all, h.address)
	}
	return all
}

// leader returns the head whose member leads, or an error if none does for too long.
func (s *site) leader(ctx context.Context) (leader *head, err error) {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	err = testhead.Eventually(ctx, func() error {
		for _, h := range s.heads {
			if h.leads(ctx) {
				leader = h
				return nil
			}
		}
		return errors.New("no head leads")
	})
	return leader, err
}

// ready waits until every head serves writes.
func (s *site) ready(ctx context.Context) error {
	for _, h := range s.heads {
		if err := h.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close kills all heads and removes the switch.
func (s *site) close() {
	for _, h := range s.heads {
		h.kill()
		if h.lossy != nil {
			_ = h.lossy.Close() // the mount ends with this process
		}
	}
	s.fabric.unplug()
	if s.disk != nil {
		s.disk.close()
	}
}
