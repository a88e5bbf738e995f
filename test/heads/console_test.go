package heads_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/testhead"
)

// follower reads a console until it has got a text.
type follower struct {
	*testing.T
	console *client.Console
	text    strings.Builder
	opened  int // times that it was opened again
}

func (f *follower) await(text string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), testhead.Timeout)
	defer cancel()
	for !strings.Contains(f.text.String(), text) {
		got, reopened, err := f.console.Read(ctx)
		if err != nil || got.Ended != "" {
			f.Fatalf("waiting for %q: %v, %s; it read %q", text, err, got.Ended, f.text.String())
		}
		if reopened {
			f.opened++
		}
		f.text.Write(got.Text)
	}
}

// repeat writes a text again and again until stop: what is written while no head has the console may be lost.
func repeat(w io.Writer, text string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			io.WriteString(w, text)
			select {
			case <-quit:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() { close(quit); <-done }
}

// A console is reached at every head, whichever talks to the BMC. When that one is killed, another one opens the
// console again, although the BMC does not know yet that the session has ended; and when it stops, without that.
func TestConsole(t *testing.T) {
	t.Parallel()
	line := bmctest.NewLine(t)
	sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Serial: line.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Stop() })
	h0 := startFirst(t)
	h1, h2 := h0.join("head1"), h0.join("head2")
	h0.Apply(fmt.Sprintf("kind: Secret\nname: bmc\nspec: {data: {user: %q, password: %q}, addresses: [127.0.0.0/8]}\n---\n"+
		"kind: Machine\nname: m1\nspec:\n  nics: [{mac: %q}]\n  bmc: {protocol: ipmi, address: %q, secret: bmc}\n",
		sim.Config.User, sim.Config.Password, knownMAC, sim.Config.Address))
	open := func(heads ...*head) *follower {
		t.Helper()
		k, err := h0.client(heads...).OpenConsole(t.Context(), "m1", false)
		if err != nil {
			t.Fatal(err)
		}
		return &follower{T: t, console: k}
	}
	for _, h := range []*head{h0, h1, h2} {
		h.Await("knows the machine", func() error {
			_, err := h0.TrivetAt(h.Head, "get", "machine", "m1")
			return err
		})
	}
	first, second := open(h1, h2, h0), open(h2, h0)
	if first.console.Head() != "head1" || second.console.Head() != "head1" {
		t.Fatalf("the BMC is used by %s and %s", first.console.Head(), second.console.Head())
	}
	io.WriteString(line, "one ")
	first.await("one ")
	second.await("one ")
	if err := second.console.Write(t.Context(), []byte("typed at head2")); err != nil {
		t.Error(err)
	}
	if got := line.Typed(len("typed at head2")); got != "typed at head2" {
		t.Errorf("typed %q", got)
	}

	h1.Kill()
	stop := repeat(line, "two ")
	first.await("two ")
	second.await("two ")
	stop()
	if first.opened != 1 || second.opened != 1 || first.console.Head() != second.console.Head() {
		t.Errorf("opened again %d and %d times, by %s and %s", first.opened, second.opened, first.console.Head(),
			second.console.Head())
	}

	for _, h := range []*head{h0, h2} {
		if h.Name == second.console.Head() {
			h.Stop()
			h.Up()
		}
	}
	stop = repeat(line, "three ")
	second.await("three ")
	stop()
	if second.opened != 2 {
		t.Errorf("opened again %d times", second.opened)
	}
}
