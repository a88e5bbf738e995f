package client

import (
	"cmp"
	"fmt"
	"os"

	"github.com/trivet-project/trivet"
)

// Follow makes the client trust the cluster's CAs of these pins, separated by commas, instead of those of its
// configuration: a response has reported that they were changed, to this program or to one before. It changes nothing
// where the client trusts certificates in PEM, and where the pins are empty or not valid.
func (c *Client) Follow(trust string) {
	if c.pinned != nil && trust != "" {
		c.pinned.follow(trust)
	}
}

func (p *pinned) follow(trust string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if trust == p.trust {
		return
	}
	pins, err := parsePins(trust)
	if err != nil {
		return
	}
	p.trust = trust
	p.pins.Store(&pins)
	if p.onChange != nil {
		p.onChange(trust)
	}
}

// SaveTrust replaces the pins of a context in the config file, where they are the former ones. context is as for
// [Environment]. It returns [trivet.ErrNotFound] where the pins are not from the file, but from the environment, or
// from [AdminFile], which the head changes itself.
func SaveTrust(context, former, trust string) error {
	return changeContext(context, func(c *Context) bool {
		same := c.Trust == former
		c.Trust = trust
		return same
	})
}

// SaveToken is [SaveTrust] for the token.
func SaveToken(context, former, token string) error {
	return changeContext(context, func(c *Context) bool {
		same := c.Token == former
		c.Token = token
		return same
	})
}

// changeContext changes a context in the config file, where change returns that it has the former value.
func changeContext(context string, change func(*Context) bool) error {
	path, err := FilePath()
	if err != nil {
		return err
	}
	f, err := ReadFile(path)
	if err != nil {
		return err
	}
	name := f.Name(cmp.Or(context, os.Getenv("TRIVET_CONTEXT")))
	c, ok := f.Contexts[name]
	if !ok || !change(&c) {
		return fmt.Errorf("save the context: %w: context %q of %s has not the former value", trivet.ErrNotFound, name, path)
	}
	f.Contexts[name] = c
	return f.Write(path)
}
