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
		Example: "  trivet key list\n  trivet key rotate store\n  trivet key rotate ca",
	}
	c.AddCommand(a.keyList(), a.keyRotate())
	return c
}

func (a *app) keyList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the keys of the store and the CAs, and the heads that have them",
		Long: "List the keys of the store by their IDs, and the CAs by their pins, and the heads that have each. One is\n" +
			"active (values are written with it, or it signs), new (it is to replace the active one), old (it was\n" +
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
	ids := h.Status.StoreKeys
	if v.Name == trivet.CAKey {
		ids = h.Status.StoredCAs
	}
	if h.Spec.Remove || h.Status.State == trivet.HeadRemoved || len(ids) == 0 {
		return
	}
	v.Heads[h.Name] = ids
	if v.Status.Active == "" { // it was never rotated
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
				v.Status.Started.Local().Format(time.DateTime), rotationText(&v.Status))
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

// rotationText is the progress of a rotation.
func rotationText(s *trivet.KeyStatus) string {
	text := "requested"
	switch s.Phase {
	case trivet.KeyDistributing:
		text = "all heads get key " + keyText(s.Next)
	case trivet.KeyFollowing:
		text = "all heads trust CA " + keyText(s.Next) + "; clients follow until " +
			s.Until.Local().Format(time.DateTime) + " at least"
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

func (a *app) keyRotate() *cobra.Command {
	var noWait bool
	var grace time.Duration
	c := &cobra.Command{
		Use:   "rotate store|ca",
		Short: "Replace the key of the store, or the CA",
		Long: "rotate store replaces the key that the values of the store are encrypted with, such as after a full head was\n" +
			"removed whose disk someone may have read. A head creates the new key, and all full heads get it from\n" +
			"another one; a witness never does. When all have it, it becomes active, and every value in the store\n" +
			"is encrypted again, up to 1,000 a second. When none is left under the old key, all heads drop it.\n\n" +
			"rotate ca replaces the CA that signs the certificates of heads, by which clients and machines recognize\n" +
			"them. A head creates the new CA, and all heads trust both. For the time of --grace, clients learn that:\n" +
			"agents, and contexts with a pin that are used meanwhile. Then the new CA signs, and the old one is\n" +
			"dropped: its certificates are refused. Each of these three steps starts the heads again, one after the\n" +
			"other. A context that was not used meanwhile needs trivet login, and where a program has the CA in a file, such\n" +
			"as Prometheus, write that again: trivet prometheus.\n\n" +
			"Records do not change, and nothing stops meanwhile. A head that is down delays the rotation until it\n" +
			"is up or removed. The command waits until the rotation is complete. If it is interrupted, the heads\n" +
			"continue; run it again to wait again: while a rotation is in progress, no other one begins.",
		Example: "  trivet key rotate store\n  trivet key rotate ca\n  trivet key rotate ca --grace 1m\n" +
			"  trivet key rotate store --no-wait\n  trivet key rotate store -o json",
		Args: cobra.ExactArgs(1), ValidArgs: trivet.KeyNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var req trivet.RotateRequest
			if cmd.Flags().Changed("grace") {
				req.Grace = new(trivet.Duration(grace))
			}
			key, err := cl.RotateKey(cmd.Context(), args[0], req)
			if errors.Is(err, trivet.ErrNotFound) {
				err = &trivet.Error{Op: "rotate", Kind: "Key", Name: args[0], Err: trivet.ErrNotFound,
					Hint: "the keys that can be rotated are: " + strings.Join(trivet.KeyNames(), ", ")}
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
	c.Flags().DurationVar(&grace, "grace", trivet.DefaultGrace.D(),
		"of ca: how long clients have to follow before the new CA signs, 1s to 24h")
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
	case k.Name == trivet.CAKey:
		fmt.Fprintf(a.Out, "key/%s rotated: all heads trust %s only\n"+
			"recovery keys of before name a former CA, and still open backups; after a theft, create another one: "+
			"trivet backup key\n", k.Name, keyText(k.Status.Active))
	default:
		fmt.Fprintf(a.Out, "key/%s rotated: %s is active; %d values were encrypted again\n", k.Name,
			printable(k.Status.Active), k.Status.Resealed)
	}
	return nil
}
