package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/trivet-project/trivet"
)

// confirmRelease says what is destroyed, and asks whether that is wanted.
func (a *app) confirmRelease(ctx context.Context, machines []*trivet.Machine, f *releaseFlags) error {
	if f.yes {
		return nil
	}
	var text strings.Builder
	for _, m := range machines {
		text.WriteString(releaseText(m, f.mode()))
	}
	return a.confirm(ctx, "release", text.String())
}

// confirm says what an operation will do, and fails unless "yes" is typed on a terminal.
func (a *app) confirm(ctx context.Context, op, text string) error {
	fmt.Fprint(a.Err, text)
	if in, ok := a.In.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return &trivet.Error{Op: op, Hint: "run it on a terminal, or add --yes",
			Err: fmt.Errorf("%w: there is no terminal to confirm it", trivet.ErrInvalid)}
	}
	return askYes(ctx, op, a.In, a.Err)
}

// planOrConfirm prints the plan of an operation where only that is wanted, and else asks by it, unless yes is set.
func (a *app) planOrConfirm(ctx context.Context, op string, plan, yes bool, text func() (string, error)) (
	planned bool, err error) {
	if yes && !plan {
		return false, nil
	}
	shown, err := text()
	if err == nil && plan {
		fmt.Fprint(a.Out, shown)
	} else if err == nil {
		err = a.confirm(ctx, op, shown)
	}
	return plan, err
}

// askYes fails unless "yes" is typed. Ctrl-C ends it.
func askYes(ctx context.Context, op string, in io.Reader, out io.Writer) error {
	fmt.Fprint(out, "Type yes to continue: ")
	lines := bufio.NewScanner(untilDone(ctx, in))
	if lines.Scan() && strings.EqualFold(strings.TrimSpace(lines.Text()), "yes") {
		return nil
	}
	if ctx.Err() != nil {
		fmt.Fprintln(out)
		return context.Cause(ctx)
	}
	return &trivet.Error{Op: op, Hint: "nothing was changed",
		Err: fmt.Errorf("%w: it was not confirmed", trivet.ErrInvalid)}
}

// releaseText says what becomes of a machine and its disks.
func releaseText(m *trivet.Machine, mode trivet.ReleaseMode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine/%s is %s", m.Name, m.Status.State)
	if m.Status.Provision != "" {
		fmt.Fprintf(&b, " and serves provision %s, which is deleted", m.Status.Provision)
	}
	b.WriteString(". What runs on it is stopped.\n")
	if m.Status.HoldsData != "" {
		fmt.Fprintf(&b, "  Its disks hold the data of %s, which was kept.\n", m.Status.HoldsData)
	}
	switch mode {
	case trivet.ReleaseKeepData:
		b.WriteString("  Its disks are kept; only a provision that names it may use it.\n")
		return b.String()
	case trivet.ReleaseNoWipe:
		b.WriteString("  Its disks are not wiped; the next provision may overwrite them.\n")
		return b.String()
	}
	if m.Status.Inventory == nil {
		b.WriteString("  ALL DATA on all of its disks is destroyed; its inventory is not known.\n")
		return b.String()
	}
	b.WriteString("  ALL DATA on these disks is destroyed, and on others that it has by then:\n")
	writeDisks(&b, m.Status.Inventory)
	return b.String()
}

// writeDisks writes the disks that can be overwritten, by what a person recognizes them.
func writeDisks(b *strings.Builder, inventory *trivet.Inventory) {
	if inventory == nil {
		b.WriteString("    not known\n")
		return
	}
	for _, d := range inventory.Disks {
		if d.ReadOnly || d.Removable {
			continue
		}
		fmt.Fprintf(b, "    %s  %s", printable(d.Name), bytesText(d.Bytes))
		for _, text := range []string{d.Model, d.Serial} {
			if text != "" {
				fmt.Fprintf(b, "  %s", printable(text))
			}
		}
		b.WriteString("\n")
	}
}
