package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) key() *cobra.Command {
	c := &cobra.Command{
		Use: "key", Short: "List the keys of the cluster",
		Example: "  trivet key list\n  trivet key list -o json",
	}
	former := a.rotateCommand() // its name before trivet rotate
	former.Hidden = true
	c.AddCommand(a.keyList(), former)
	return c
}

func (a *app) keyList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the keys of the cluster, and the heads that have them",
		Long: "List the keys of the cluster by their IDs, and the CAs by their pins, and the heads that have each. One is\n" +
			"active (it encrypts or signs), new (it is to replace the active one), old (it was\n" +
			"replaced, and is dropped when nothing needs it any more) or unused. A rotation in progress is shown below\n" +
			"the list.",
		Example: "  trivet key list\n  trivet key list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			views, err := keysOf(cmd.Context(), cl)
			if err != nil {
				return err
			}
			return a.showKeys(views)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// keyView is the keys with one record.
type keyView struct {
	Name   string              `json:"name"`
	Status trivet.KeyStatus    `json:"status"`
	Heads  map[string][]string `json:"heads"` // the IDs of the keys that each head has
}

func keysOf(ctx context.Context, cl *client.Client) (views []keyView, err error) {
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, name := range trivet.KeyNames() {
		v := keyView{Name: name, Heads: map[string][]string{}}
		key, err := client.Of[trivet.Key](cl).Get(ctx, name)
		if err == nil {
			v.Status = key.Status
		} else if !errors.Is(err, trivet.ErrNotFound) {
			return nil, err
		}
		for _, h := range heads {
			v.add(h)
		}
		views = append(views, v)
	}
	return views, nil
}

// add adds the keys of a head. A witness has CAs only.
func (v *keyView) add(h *trivet.Head) {
	ids := h.Status.Keys(v.Name)
	if h.Spec.Remove || h.Status.State == trivet.HeadRemoved || len(ids) == 0 {
		return
	}
	v.Heads[h.Name] = ids
	if v.Status.Active == "" && h.Serves() { // it was never rotated
		v.Status.Active = ids[0]
	}
}

// holders returns the heads that have each key.
func (v *keyView) holders() map[string][]string {
	by := map[string][]string{}
	for _, id := range []string{v.Status.Active, v.Status.Next, v.Status.Old} {
		if id != "" {
			by[id] = nil
		}
	}
	for _, head := range slices.SortedFunc(maps.Keys(v.Heads), byNumber) {
		for _, id := range v.Heads[head] {
			by[id] = append(by[id], head)
		}
	}
	return by
}

func (v *keyView) state(id string) string {
	switch id {
	case v.Status.Active:
		return "active"
	case v.Status.Next:
		return "new"
	case v.Status.Old:
		return "old"
	}
	return "unused"
}

func (a *app) showKeys(views []keyView) error {
	if a.output != "table" {
		return a.showValue(views)
	}
	rows := [][]string{{"NAME", "KEY", "STATE", "HEADS"}}
	for _, v := range views {
		by := v.holders()
		for _, state := range []string{"active", "new", "old", "unused"} {
			for _, id := range slices.Sorted(maps.Keys(by)) {
				if v.state(id) == state {
					rows = append(rows, []string{v.Name, keyText(id), state, printable(strings.Join(by[id], " "))})
				}
			}
		}
	}
	if err := align(a.Out, rows); err != nil {
		return err
	}
	for _, v := range views {
		if v.Status.Phase != "" {
			fmt.Fprintf(a.Err, "a rotation of %s is in progress since %s: %s\n", v.Name,
				v.Status.Started.Local().Format(time.DateTime), rotationText(v.Name, &v.Status))
		}
	}
	return nil
}

// keyText is the ID of a key for people: of a pin, the beginning.
func keyText(id string) string {
	const shown = len("sha256:") + 16
	if strings.HasPrefix(id, "sha256:") && len(id) > shown {
		return printable(id[:shown])
	}
	return printable(id)
}

// rotationText is the progress of the rotation of a key.
func rotationText(name string, s *trivet.KeyStatus) string {
	text := "requested"
	switch until := s.Until.Local().Format(time.DateTime); s.Phase {
	case trivet.KeyDistributing:
		text = "all heads get key " + keyText(s.Next)
	case trivet.KeyFollowing:
		text = "the old and the new key are valid until " + until + " at least"
		if name == trivet.BootCAKey {
			text = "all heads have boot CA " + keyText(s.Next) + ", and sign by it from " + until + " on, at the earliest"
		}
	case trivet.KeyResealing:
		text = fmt.Sprintf("key %s is active; %d values encrypted again, %d read in this pass", s.Active, s.Resealed,
			s.Read)
	case trivet.KeySigning:
		text = "CA " + keyText(s.Active) + " signs the certificates of all heads"
	case trivet.KeyDropping:
		text = "nothing needs key " + keyText(s.Old) + " any more; all heads drop it"
	}
	if s.Reason != "" {
		text += "; it " + s.Reason
	}
	return printable(text)
}
