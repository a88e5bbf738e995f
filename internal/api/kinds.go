package api

import (
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// kindTable is a noun's table without its type, for what is generic over the nouns.
type kindTable struct {
	get    func(tx *store.Tx, name string) (trivet.Record, error)
	create func(tx *store.Tx, r trivet.Record) error
	put    func(tx *store.Tx, r trivet.Record) error
	// admit checks a write beyond the record itself, and does what belongs into the same transaction; may be nil.
	admit func(c *change) error
}

func tableOf[T any, P interface {
	*T
	trivet.Record
}](t *store.Table[T], admit func(c *change, old, new P) error) kindTable {
	k := kindTable{
		get: func(tx *store.Tx, name string) (trivet.Record, error) {
			v, err := t.In(tx).Get(name)
			if err != nil {
				return nil, err
			}
			return P(v), nil
		},
		create: func(tx *store.Tx, r trivet.Record) error { return t.In(tx).Create((*T)(r.(P))) },
		put:    func(tx *store.Tx, r trivet.Record) error { return t.In(tx).Put((*T)(r.(P))) },
	}
	if admit != nil {
		k.admit = func(c *change) error {
			old, _ := c.old.(P)
			next, _ := c.new.(P)
			return admit(c, old, next)
		}
	}
	return k
}

func (h *Handler) tables(t *state.Tables) map[trivet.Kind]kindTable {
	return map[trivet.Kind]kindTable{
		"Machine":   tableOf(t.Machines, h.admitMachine),
		"Template":  tableOf(t.Templates, h.admitTemplate),
		"Provision": tableOf(t.Provisions, h.admitProvision),
		"Workflow":  tableOf[trivet.Workflow](t.Workflows, nil),
		"Image":     tableOf(t.Images, h.admitImage),
		"Platform":  tableOf(t.Platforms, h.admitPlatform),
		"Network":   tableOf(t.Networks, h.admitNetwork),
		"Address":   tableOf[trivet.Address](t.Addresses, nil),
		"MAC":       tableOf[trivet.MAC](t.MACs, nil),
		"Site":      tableOf(t.Sites, h.admitSite),
		"Head":      tableOf[trivet.Head](t.Heads, nil),
		"Secret":    tableOf(t.Secrets, h.admitSecret),
		"Token":     tableOf[trivet.Token](t.Tokens, nil),
		"Account":   tableOf(t.Accounts, h.admitAccount),
		"Event":     tableOf[trivet.Event](t.Events, nil),
	}
}

// admitWrite checks a record by itself and by its kind's rules. Old is nil at a creation, new at a deletion.
func (h *Handler) admitWrite(c *change) error {
	if c.new != nil {
		if err := c.new.Validate(); err != nil {
			return c.refuse(err)
		}
	}
	if admit := h.kinds[c.info.Kind].admit; admit != nil {
		return c.refuse(admit(c))
	}
	return nil
}

// refuse says which record was refused and why.
func (c *change) refuse(err error) error {
	var said *trivet.Error
	if err == nil || errors.As(err, &said) {
		return err
	}
	op, r := "update", c.new
	switch {
	case c.old == nil:
		op = "create"
	case c.new == nil:
		op, r = "delete", c.old
	}
	return &trivet.Error{Op: op, Kind: c.info.Kind, Name: r.Header().Name, Err: err}
}
