package test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is a head and a provider that uses it.
type site struct {
	*core
	head   *testhead.Head
	client *client.Client
}

// newSite starts a head. Without the program under test the test fails and says how to build it.
func newSite(t *testing.T) *site {
	t.Helper()
	h := testhead.NewHead(t, "head0")
	h.Up()
	return &site{core: configured(t, providerConfig(h)), head: h, client: h.Client(testhead.Timeout)}
}

// providerConfig is the configuration of a provider that uses a head as its administrator.
func providerConfig(h *testhead.Head) object {
	c := h.Credential()
	return object{"server": []string{h.API()}, "trust": c.Trust, "token": c.Token}
}

// kind returns the records of a kind.
func (s *site) records(name string) client.Kind {
	s.Helper()
	info, err := trivet.LookupKind(name)
	if err != nil {
		s.Fatal(err)
	}
	return s.client.Kind(info)
}

// must returns a record that exists.
func must[T any, P client.Pointer[T]](s *site, project, name string) *T {
	s.Helper()
	r, err := client.Of[T, P](s.client).In(project).Get(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// isGone reports whether a record does not exist.
func (s *site) isGone(kind, project, name string) bool {
	s.Helper()
	_, err := s.records(kind).In(project).Get(s.Context(), name)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		s.Fatal(err)
	}
	return err != nil
}

// patch changes a record outside of Terraform.
func (s *site) patch(kind, project, name, patch string) {
	s.Helper()
	if _, err := s.records(kind).In(project).Patch(s.Context(), name, []byte(patch), 0); err != nil {
		s.Fatal(err)
	}
}

// watchOf selects a provision of the default project.
func watchOf(name string) client.WatchOptions {
	return client.WatchOptions{Kinds: []trivet.Kind{"Provision"}, Project: trivet.DefaultProject, Names: []string{name}}
}
