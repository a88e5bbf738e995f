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
		Use: "key", Short: "List and rotate the keys of the cluster",
		Example: "  trivet key list\n  trivet key rotate store",
	}
	c.AddCommand(a.keyList(), a.keyRotate())
	return c
}

func (a *app) keyList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the keys of the store, and the heads that have them",
		Long: "List the keys of the store by their IDs, and the heads that have each. A key is active (values are\n" +
			"written with it), new (it is to replace the active one), old (it was replaced, and is dropped when\n" +
			"nothing is encrypted with it any more) or unused. A rotation in progress is shown below the list.",
		Example: "  trivet key list\n  trivet key list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			v, err := keysOf(cmd.Context(), cl)
			if err != nil {
				return err
			}
			return a.showKeys(v)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// keyView is the keys of the store.
type keyView struct {
	Name   string              `json:"name"`
	Status trivet.KeyStatus    `json:"status"`
	Heads  map[string][]string `json:"heads"` // the IDs of the keys that each full head has
}

func keysOf(ctx context.Context, cl *client.Client) (v keyView, err error) {
	v = keyView{Name: trivet.StoreKey, Heads: map[string][]string{}}
	key, err := client.Of[trivet.Key](cl).Get(ctx, trivet.StoreKey)
	if err == nil {
		v.Status = key.Status
	} else if !errors.Is(err, trivet.ErrNotFound) {
		return v, err
	}
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	for _, h := range heads {
		if !h.Serves() {
			continue
		}
		v.Heads[h.Name] = h.Status.StoreKeys
		if v.Status.Active == "" && len(h.Status.StoreKeys) > 0 { // it was never rotated
			v.Status.Active = h.Status.StoreKeys[0]
		}
	}
	return v, err
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

func (a *app) showKeys(v keyView) error {
	if a.output != "table" {
		return a.showValue(v)
	}
	by := v.holders()
	rows := [][]string{{"NAME", "KEY", "STATE", "HEADS"}}
	for _, state := range []string{"active", "new", "old", "unused"} {
		for _, id := range slices.Sorted(maps.Keys(by)) {
			if v.state(id) == state {
				rows = append(rows, []string{v.Name, printable(id), state, printable(strings.Join(by[id], " "))})
			}
		}
	}
	if err := align(a.Out, rows); err != nil || v.Status.Phase == "" {
		return err
	}
	fmt.Fprintf(a.Err, "a rotation is in progress since %s: %s\n", v.Status.Started.Local().Format(time.DateTime),
		rotationText(&v.Status))
	return nil
}

// rotationText is the progress of a rotation.
func rotationText(s *trivet.KeyStatus) string {
	text := "requested"
	switch s.Phase {
	case trivet.KeyDistributing:
		text = "all full heads get key " + s.Next
	case trivet.KeyResealing:
		text = fmt.Sprintf("key %s is active; %d values encrypted again, %d read in this pass", s.Active, s.Resealed,
			s.Read)
	case trivet.KeyDropping:
		text = "nothing is encrypted with key " + s.Old + " any more; all heads drop it"
	}
	if s.Reason != "" {
		text += "; it " + s.Reason
	}
	return printable(text)
}

func (a *app) keyRotate() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use:   "rotate store",
		Short: "Replace the key of the store, and encrypt everything in it again",
		Long: "Replace the key that the values of the store are encrypted with, such as after a full head was\n" +
			"removed whose disk someone may have read. A head creates the new key, and all full heads get it from\n" +
			"another one; a witness never does. When all have it, it becomes active, and every value in the store\n" +
			"is encrypted again, up to 1,000 a second. When none is left under the old key, all heads drop it.\n\n" +
			"Records do not change, and nothing stops meanwhile. A head that is down delays the rotation until it\n" +
			"is up or removed. The command waits until the rotation is complete. If it is interrupted, the heads\n" +
			"continue; run it again to wait again: while a rotation is in progress, no other one begins.",
		Example: "  trivet key rotate store\n  trivet key rotate store --no-wait\n  trivet key rotate store -o json",
		Args:    cobra.ExactArgs(1), ValidArgs: []cobra.Completion{trivet.StoreKey},
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			key, err := cl.RotateKey(cmd.Context(), args[0])
			if errors.Is(err, trivet.ErrNotFound) {
				err = &trivet.Error{Op: "rotate", Kind: "Key", Name: args[0], Err: trivet.ErrNotFound,
					Hint: "the keys that can be rotated are: " + trivet.StoreKey}
			}
			if err == nil && !noWait {
				key, err = a.waitRotated(cmd.Context(), cl, key)
			}
			if err != nil {
				return err
			}
			return a.showRotated(key)
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "request the rotation and exit")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// waitRotated waits until a rotation is complete, prints its progress, and returns the record.
func (a *app) waitRotated(ctx context.Context, cl *client.Client, key *trivet.Key) (*trivet.Key, error) {
	last := ""
	for e, err := range client.Of[trivet.Key](cl).Watch(ctx, client.WatchOptions{Names: []string{key.Name}}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		now, ok := e.Record.(*trivet.Key)
		if !ok || e.Type != client.Put || now.Spec.Rotations < key.Spec.Rotations {
			continue
		}
		if now.Status.Rotations >= key.Spec.Rotations {
			return now, nil
		}
		if text := rotationText(&now.Status); text != last {
			last = text
			fmt.Fprintln(a.Err, text)
		}
	}
	fmt.Fprintln(a.Err, "the rotation continues; to check it: trivet key list")
	return nil, ExitError(130)
}

func (a *app) showRotated(k *trivet.Key) error {
	switch {
	case a.output != "table":
		return a.showValue(k)
	case k.Rotating():
		fmt.Fprintf(a.Out, "key/%s is being rotated\n", k.Name)
	default:
		fmt.Fprintf(a.Out, "key/%s rotated: %s is active; %d values were encrypted again\n", k.Name,
			printable(k.Status.Active), k.Status.Resealed)
	}
	return nil
}
