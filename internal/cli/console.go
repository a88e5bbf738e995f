package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) console() *cobra.Command {
	var take bool
	c := &cobra.Command{
		Use:   "console MACHINE",
		Short: "Connect to the serial console of a machine, through its BMC",
		Long: "Connect to the serial console of a machine, through its BMC: by serial over LAN (spec.bmc.protocol: ipmi),\n" +
			"or by SSH where the BMC's Redfish service offers that (redfish).\n\n" +
			"What the machine writes goes to the terminal as it is, with control characters; it may change the\n" +
			"terminal's title or colors. trivet logs prints what was collected during a workflow, escaped.\n\n" +
			"At the beginning of a line:\n" +
			"  ~.   leave\n" +
			"  ~B   send a break\n" +
			"  ~~   send ~\n" +
			"  ~?   print these\n\n" +
			"Ctrl-C goes to the machine. Several people may be connected: all see and type the same. A BMC permits one\n" +
			"session, so a console that another program has, such as ipmitool, must be ended there or taken by --take,\n" +
			"which is for ipmi: by SSH the BMC decides.\n" +
			"When a head is lost, another one opens the console again; text in between is lost.\n\n" +
			"Needs role operator. The audit log has who opened a console, not what was typed.",
		Example: "  trivet console m1\n  trivet console m1 --take\n  trivet console m1 </dev/null >m1.txt",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP) // the terminal is restored then, too
			defer stop()
			return a.connectConsole(ctx, cl, args[0], take)
		},
	}
	c.Flags().BoolVar(&take, "take", false, "end the session of another program that has the console (ipmi)")
	return c
}

// errLeft: the person has left the console.
var errLeft = errors.New("left")

// connectConsole connects terminal and console until the person leaves or the console ends.
func (a *app) connectConsole(ctx context.Context, cl *client.Client, machine string, take bool) error {
	k, err := cl.OpenConsole(ctx, machine, take)
	if err != nil {
		return err
	}
	restore, err := a.rawTerminal()
	if err != nil {
		return err
	}
	defer restore()
	a.say("console of %s, by head %s; ~. at the beginning of a line leaves", machine, k.Head())
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	go func() { leave(a.typeOn(ctx, k)) }() // a read of the terminal may last as long as the program
	for {
		text, reopened, err := k.Read(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errLeft):
			return nil
		case err != nil:
			return fmt.Errorf("console of %s: %w", machine, err)
		case reopened:
			a.say("the connection to the console was lost; head %s has opened it again; some text may be missing", k.Head())
		case text.Missed > 0:
			a.say("%d bytes are missing: the machine writes faster than they are read", text.Missed)
		}
		if _, err := a.screen.Write(text.Text); err != nil {
			return err
		}
		if text.Ended != "" {
			return &trivet.Error{Op: "use console of", Kind: "Machine", Name: machine, Hint: "open it again",
				Err: fmt.Errorf("%w: %s", trivet.ErrUnavailable, printable(text.Ended))}
		}
	}
}

// rawTerminal lets each key go to the machine. The returned function restores the terminal.
func (a *app) rawTerminal() (restore func(), err error) {
	f, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return func() { term.Restore(int(f.Fd()), old) }, nil
}

// say prints a line about the connection. The terminal may be in raw mode.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.status, "\r\n[trivet: %s]\r\n", printable(fmt.Sprintf(format, args...)))
}

// typeOn sends what is typed, until the person leaves: errLeft. It returns nothing else before the input has ended and
// ctx does.
func (a *app) typeOn(ctx context.Context, k *client.Console) error {
	keys := newEscapes()
	buf := make([]byte, 1<<10)
	for {
		n, err := a.In.Read(buf)
		for _, part := range keys.split(buf[:n]) {
			var typed error
			switch part.command {
			case '.':
				return errLeft
			case 'B':
				typed = k.Break(ctx)
			case '?':
				a.say("~. leaves, ~B sends a break, ~~ sends ~")
			default:
				typed = k.Write(ctx, part.text)
			}
			if typed != nil && ctx.Err() == nil {
				a.say("not typed: %v", typed)
			}
		}
		if err != nil {
			<-ctx.Done()
			return nil
		}
	}
}

// escapes finds the commands in what is typed: ~ and a letter at the beginning of a line.
type escapes struct{ lineStart, tilde bool }

func newEscapes() *escapes { return &escapes{lineStart: true} }

// typed is text for the machine, or a command.
type typed struct {
	text    []byte
	command byte // '.', 'B' or '?'; 0: none
}

func (e *escapes) split(b []byte) (parts []typed) {
	var text []byte
	for _, c := range b {
		switch {
		case e.tilde && (c == '.' || c == 'B' || c == '?'):
			if len(text) > 0 {
				parts = append(parts, typed{text: text})
				text = nil
			}
			parts = append(parts, typed{command: c})
			e.tilde, e.lineStart = false, true
			continue
		case e.tilde && c != '~':
			text = append(text, '~', c)
		case e.lineStart && c == '~' && !e.tilde:
			e.tilde = true
			continue
		default:
			text = append(text, c)
		}
		e.tilde, e.lineStart = false, c == '\r' || c == '\n'
	}
	if len(text) > 0 {
		parts = append(parts, typed{text: text})
	}
	return parts
}
