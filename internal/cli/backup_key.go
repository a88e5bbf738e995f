package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/recovery"
)

func (a *app) backupKey() *cobra.Command {
	var yes, replace bool
	c := &cobra.Command{
		Use: "key", Short: "Create the recovery key, which opens backups",
		Long: "Create the recovery key and write it to the standard output, once. Its public part becomes\n" +
			"spec.recoveryKey of the site, and backups are made for it from then on; the key itself is on no head.\n" +
			"Without it no backup can be restored. Keep it apart from the heads and the backups.\n\n" +
			"On a terminal, a part of it must be typed, as proof that it was stored. Backups that were made for an\n" +
			"earlier key need that one still.",
		Example: "  trivet backup key\n  umask 077; trivet backup key --yes > recovery.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.createKey(cmd.Context(), yes, replace)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for a part of the key; for programs that store the output")
	c.Flags().BoolVar(&replace, "replace", false, "replace the recovery key of the site, such as one that was lost")
	return c
}

func (a *app) createKey(ctx context.Context, yes, replace bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if err != nil {
		return err
	}
	if old := site.Spec.RecoveryKey; old != "" && !replace {
		return &trivet.Error{Op: "create the recovery key",
			Err:  fmt.Errorf("%w: backups are made for %s", trivet.ErrExists, old),
			Hint: "use the file of that key; if it was lost, add --replace"}
	}
	if f, ok := a.In.(*os.File); !yes && (!ok || !term.IsTerminal(int(f.Fd()))) {
		return &trivet.Error{Op: "create the recovery key",
			Err:  fmt.Errorf("%w: there is no terminal to confirm that the key was stored", trivet.ErrInvalid),
			Hint: "run it on a terminal, or store the output and add --yes"}
	}
	ca, err := cl.CA(ctx)
	if err != nil {
		return err
	}
	root, err := auth.ParseRoot([]byte(ca.Certificates))
	if err != nil {
		return err
	}
	text, recipient, err := recovery.NewKey(root.Cluster(), root.Trust(), time.Now())
	if err != nil {
		return err
	}
	if _, err := io.WriteString(a.Out, text.Reveal()); err != nil {
		return err
	}
	if !yes {
		if err := a.confirmKey(a.In, text); err != nil {
			return err
		}
	}
	return a.storeRecipient(ctx, cl, site, recipient)
}

// storeRecipient makes the site's backups be made for a key.
func (a *app) storeRecipient(ctx context.Context, cl *client.Client, site *trivet.Site, recipient string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"recoveryKey": recipient}})
	if err != nil {
		return err
	}
	info, err := trivet.LookupKind("site")
	if err == nil {
		_, err = cl.Kind(info).Patch(ctx, trivet.SiteName, patch, site.Revision)
	}
	if err != nil {
		return fmt.Errorf("the key that was printed is not in use: %w", err)
	}
	fmt.Fprintf(a.Err, "backups are made for %s from now on\n", recipient)
	return nil
}

// typedSize is how much of a key must be typed, and typedTries how often.
const (
	typedSize  = 8
	typedTries = 3
)

// confirmKey asks for the end of a key, which only who has stored it can type later.
func (a *app) confirmKey(in io.Reader, text auth.Secret) error {
	key := strings.TrimSpace(text.Reveal())
	lines := bufio.NewScanner(in)
	for range typedTries {
		fmt.Fprintf(a.Err, "\nThe key is shown only now. Store all lines above, then type its last %d characters: ",
			typedSize)
		if !lines.Scan() {
			break
		}
		if strings.EqualFold(strings.TrimSpace(lines.Text()), key[len(key)-typedSize:]) {
			return nil
		}
	}
	return &trivet.Error{Op: "create the recovery key", Hint: "run the command again for another key",
		Err: fmt.Errorf("%w: that is not the end of the key; the key that was printed is not in use",
			trivet.ErrInvalid)}
}
