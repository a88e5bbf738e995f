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

// allKeys as an argument of rotate is all of [trivet.KeyNames].
const allKeys = "all"

// rotation is a request to rotate keys.
type rotation struct {
	names        []string
	grace        trivet.Duration // 0: the default of each key
	noWait, plan bool
	yes          bool
	dropFormer   bool // of the boot CA, instead of a rotation
}

func (a *app) rotateCommand() *cobra.Command {
	var r rotation
	var grace time.Duration
	c := &cobra.Command{
		Use:   "rotate ca|store|seal|boot|boot-ca|all",
		Short: "Replace keys of the cluster",
		Long: "Replace keys of the cluster, such as after a full head was removed whose disk someone may have read:\n\n" +
			"  ca       the CA that signs the certificates of heads, by which clients and machines recognize them\n" +
			"  store    what the values of the store are encrypted with; all are encrypted again\n" +
			"  seal     what the values of secrets are encrypted with once more; likewise\n" +
			"  boot     what signs the tokens in boot scripts and seeds; those of the old one are valid for --grace\n" +
			"  boot-ca  the CA that firmware verifies the heads by, where it boots by HTTPS\n" +
			"  all      these, one after the other; --plan shows what is done, and what is left to do\n\n" +
			"The tokens of one person or program are replaced by trivet rotate account NAME; a head that may have been\n" +
			"read, or its witness, by trivet head replace, and then rotate all.\n\n" +
			"A head creates the new key, and all full heads get it from another one; a witness never does. When all\n" +
			"have it, it becomes active. When nothing needs the old one any more, all heads drop it.\n\n" +
			"For a new CA, all heads trust both first. For the time of --grace, clients learn that: agents, and\n" +
			"contexts with a pin that are used meanwhile. Then the new CA signs, and the old one is dropped: its\n" +
			"certificates are refused. Each of these three steps starts the heads again, one after the other. A\n" +
			"context that was not used meanwhile needs trivet login, and where a program has the CA in a file, such\n" +
			"as Prometheus, write that again: trivet prometheus.\n\n" +
			"A new boot CA signs at once, or after --grace, and firmware that has the old one enrolled still boots by\n" +
			"HTTPS: the heads send what the old one has signed of the new one. But firmware also accepts who has\n" +
			"the key of the old one. So enrol the new one (trivet ca export), and remove the old one from the\n" +
			"firmware. When all has the new one, --drop-former stops sending what the old ones have signed. An iPXE\n" +
			"that was built with TRUST needs another build in the time of --grace: see trivet ca export.\n\n" +
			"Records do not change, and nothing stops meanwhile. A head that is down delays a rotation until it is\n" +
			"up or removed. The command waits until the rotation is complete. If it is interrupted, the heads\n" +
			"continue; run it again to wait again: while a rotation is in progress, no other one begins.",
		Example: "  trivet rotate store\n  trivet rotate ca --grace 1m\n" +
			"  trivet rotate all --plan\n  trivet rotate all --grace 1m --yes\n" +
			"  trivet rotate seal --no-wait\n\n" +
			"  # the CA in firmware: replace it, enrol the new one, and stop accepting the old one\n" +
			"  trivet rotate boot-ca\n  trivet ca export > boot-ca.pem\n  trivet rotate boot-ca --drop-former",
		Args: cobra.ExactArgs(1), ValidArgs: append(trivet.KeyNames(), allKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("grace") && (grace < trivet.MinGrace.D() || grace > trivet.MaxGrace.D()) {
				return &trivet.FieldError{Field: "--grace",
					Problem: fmt.Sprintf("is %s; must be from 1s to 24h", grace)}
			}
			r.names, r.grace = args, trivet.Duration(grace)
			if r.dropFormer {
				return a.dropFormer(cmd.Context(), &r)
			}
			if args[0] == allKeys {
				r.names = trivet.KeyNames()
			} else {
				r.yes = true // one key is replaced without a question
			}
			return a.rotate(cmd.Context(), &r)
		},
	}
	c.Flags().DurationVar(&grace, "grace", 0, "how long clients have to follow before a new CA signs (default 10m), "+
		"tokens of an old boot key are valid (default 1h), and an old boot CA signs (default 1s); 1s to 24h")
	c.Flags().BoolVar(&r.noWait, "no-wait", false, "request the rotation and exit")
	c.Flags().BoolVar(&r.plan, "plan", false, "show what would be done, and do nothing")
	c.Flags().BoolVar(&r.yes, "yes", false, "rotate all without asking")
	c.Flags().BoolVar(&r.dropFormer, "drop-former", false, "of boot-ca: rotate nothing, and stop sending what former "+
		"boot CAs have signed")
	a.outputForms(c, "table", "json", "yaml")
	c.AddCommand(a.rotateAccount())
	return c
}

// dropFormer makes heads stop sending what former boot CAs have signed.
func (a *app) dropFormer(ctx context.Context, r *rotation) error {
	if r.names[0] != trivet.BootCAKey || len(r.names) > 1 || r.grace != 0 {
		return &trivet.FieldError{Field: "--drop-former",
			Problem: "is for " + trivet.BootCAKey + ", and without --grace: nothing is rotated"}
	}
	cl, err := a.connect()
	if err != nil {
		return err
	}
	planned, err := a.planOrConfirm(ctx, "drop former boot CAs", r.plan, r.yes, func() (string, error) {
		return dropFormerText(ctx, cl)
	})
	if planned || err != nil {
		return err
	}
	key, err := cl.DropFormerBootCAs(ctx)
	switch {
	case err != nil:
		return err
	case a.output != "table":
		return a.showValue(key)
	}
	fmt.Fprintf(a.Out, "key/%s: former boot CAs are dropped; a head that is down drops them when it returns\n", key.Name)
	return nil
}

// dropFormerText says which boot CAs are dropped, and what becomes of firmware that trusts them.
func dropFormerText(ctx context.Context, cl *client.Client) (string, error) {
	key, err := client.Of[trivet.Key](cl).Get(ctx, trivet.BootCAKey)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && len(key.Status.Former) == 0 {
		return "There are no former boot CAs: nothing is dropped.\n", nil
	}
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, pin := range key.Status.Former {
		fmt.Fprintf(&out, "Boot CA %s is dropped.\n", keyText(pin))
	}
	fmt.Fprintf(&out, "Machines in whose firmware %s is not enrolled do not boot by HTTPS any more.\n"+
		"Heads do not know which these are. Machines that boot by PXE or plain HTTP are not affected.\n",
		keyText(key.Status.Active))
	return out.String(), nil
}

// rotate rotates keys, one after the other.
func (a *app) rotate(ctx context.Context, r *rotation) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	planned, err := a.planOrConfirm(ctx, "rotate", r.plan, r.yes, func() (string, error) { return r.text(ctx, cl) })
	if planned || err != nil {
		return err
	}
	var done []*trivet.Key
	for _, name := range r.names {
		key, err := cl.RotateKey(ctx, name, r.request(name))
		if errors.Is(err, trivet.ErrNotFound) {
			err = &trivet.Error{Op: "rotate", Kind: "Key", Name: name, Err: trivet.ErrNotFound,
				Hint: "the keys that can be rotated are: " + strings.Join(append(trivet.KeyNames(), allKeys), ", ")}
		}
		if err == nil && !r.noWait {
			key, err = a.waitRotated(ctx, cl, key)
		}
		if err == nil && a.output == "table" {
			err = a.showRotated(key)
		}
		if err != nil {
			return err
		}
		done = append(done, key)
	}
	switch {
	case a.output == "table":
		return nil
	case len(done) == 1:
		return a.showValue(done[0])
	}
	return a.showValue(done)
}

// request is the request for one key.
func (r *rotation) request(name string) (req trivet.RotateRequest) {
	if r.grace != 0 && (trivet.DefaultGrace(name) != 0 || len(r.names) == 1) { // a single one is refused by the head
		req.Grace = &r.grace
	}
	return req
}

// rotationSteps says what the rotation of each key does.
var rotationSteps = map[string]string{
	trivet.StoreKey: "every value in the store is encrypted again, up to 1,000 a second",
	trivet.SealKey:  "every value of a secret is encrypted again",
	trivet.BootKey:  "tokens of boot scripts and seeds that were written before are refused after %s",
	trivet.BootCAKey: "it signs after %s; firmware that trusts the old one boots as before, and must be given the new " +
		"one, since it also accepts who has the key of the old one",
	trivet.CAKey: "clients have %s to follow; then what the old CA has signed is refused; each head starts again " +
		"three times, one after the other",
}

// graceText is a duration without zero minutes and seconds: 1h, 10m.
func graceText(d trivet.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

// rotationRest is what rotations do not replace, and someone who had the keys could read.
var rotationRest = []string{
	"passwords in secrets, such as those of BMCs: change them there, and apply the secrets again",
	"tokens of accounts: trivet rotate account",
	"the boot CA in firmware: enrol the new one (trivet ca export), remove the old one, then trivet rotate boot-ca " +
		"--drop-former",
	"a recovery key, where it was on that disk: trivet backup key",
}

// text says what is rotated, what it waits for, and what is left to the operator.
func (r *rotation) text(ctx context.Context, cl *client.Client) (string, error) {
	views, err := keysOf(ctx, cl)
	if err != nil {
		return "", err
	}
	cluster, err := cl.Cluster(ctx)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range r.names {
		text := rotationSteps[name]
		if strings.Contains(text, "%s") {
			grace := r.grace
			if grace == 0 {
				grace = trivet.DefaultGrace(name)
			}
			text = fmt.Sprintf(text, graceText(grace))
		}
		i := slices.IndexFunc(views, func(v keyView) bool { return v.Name == name })
		if i < 0 {
			return "", &trivet.Error{Op: "rotate", Kind: "Key", Name: name, Err: trivet.ErrNotFound,
				Hint: "the keys that can be rotated are: " + strings.Join(append(trivet.KeyNames(), allKeys), ", ")}
		}
		heads := slices.SortedFunc(maps.Keys(views[i].Heads), byNumber)
		fmt.Fprintf(&out, "%s: %s is replaced on %s; %s\n", name, keyText(views[i].Status.Active),
			printable(strings.Join(heads, ", ")), text)
		if views[i].Status.Phase != "" {
			fmt.Fprintf(&out, "  a rotation is in progress, and is completed: %s\n", rotationText(name, &views[i].Status))
		}
	}
	for _, h := range cluster.Heads {
		if h.State == "down" || h.State == "joining" {
			fmt.Fprintf(&out, "It waits for %s, which is %s: start it, or remove it\n", printable(h.Name), h.State)
		}
	}
	fmt.Fprintln(&out, "Left to you:")
	for _, line := range rotationRest {
		fmt.Fprintln(&out, "  "+line)
	}
	return out.String(), nil
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
		if text := rotationText(key.Name, &now.Status); text != last {
			last = text
			fmt.Fprintf(a.Err, "%s: %s\n", key.Name, text)
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
	case k.Name == trivet.BootKey:
		fmt.Fprintf(a.Out, "key/%s rotated: %s is active; tokens of the old one are refused\n", k.Name,
			printable(k.Status.Active))
	case k.Name == trivet.BootCAKey:
		fmt.Fprintf(a.Out, "key/%s rotated: %s signs\nenrol it in the firmware of machines that boot by HTTPS, and "+
			"remove the old one there: trivet ca export\nwhen all have it: trivet rotate boot-ca --drop-former\n", k.Name,
			printable(k.Status.Active))
	default:
		fmt.Fprintf(a.Out, "key/%s rotated: %s is active; %d values were encrypted again\n", k.Name,
			printable(k.Status.Active), k.Status.Resealed)
	}
	return nil
}
